"""The options of Cellpose's command line by generation, as its ``cellpose/cli.py`` has them.

Taken from the wheels of 2.3.2, 3.1.1.2 and 4.0.9 by reading ``get_arg_parser()._actions``: the
options that a segmentation has. Of the version that is installed the tests ask Cellpose itself.
"""

import argparse
import functools

_FLAGS = "use_gpu no_resample no_norm do_3D augment invert exclude_on_edges verbose"
_NUMBERS = "diameter flow_threshold cellprob_threshold stitch_threshold anisotropy"
_WHOLE = "chan chan2 channel_axis z_axis min_size batch_size"
_TEXTS = "image_path dir pretrained_model gpu_device savedir"

OF_2_3_2 = {
    **{name: {"action": "store_true"} for name in _FLAGS.split()},
    **{name: {"type": float} for name in _NUMBERS.split()},
    **{name: {"type": int} for name in _WHOLE.split()},
    **{name: {"type": str} for name in _TEXTS.split()},
}
OF_3_1_1_2 = {
    **OF_2_3_2,
    "restore_type": {"type": str},
    "niter": {"type": int},
    "flow3D_smooth": {"type": float},
    "norm_percentile": {"nargs": 2},
}
OF_4_0_9 = {**OF_3_1_1_2, "bsize": {"type": int}}
_BY_VERSION = {"2.3.2": OF_2_3_2, "3.1.1.2": OF_3_1_1_2, "4.0.9": OF_4_0_9}


@functools.cache
def parser_of(version):
    """The parser of a version: Cellpose's own where that version is installed."""
    if version not in _BY_VERSION:
        from cellpose.cli import get_arg_parser

        return get_arg_parser()
    parser = argparse.ArgumentParser(exit_on_error=True)
    for name, options in _BY_VERSION[version].items():
        parser.add_argument(f"--{name}", **options)
    return parser
