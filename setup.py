"""What pyproject.toml cannot say: notebooks and grids go into the package when it is built."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

BROUGHT = ("notebooks/[!.]*.ipynb", "notebooks/voila.json", "grids/[!.]*.yaml")
"""What stays beside ``src/`` in a checkout; `cellrepro.headless.brought` finds it in both."""


class WithNotebooks(build_py):
    """Copies them into the built package; an editable install has the checkout's own."""

    def run(self):
        """Build the package, then add to it."""
        super().run()
        for file in [] if self.editable_mode else [f for p in BROUGHT for f in Path().glob(p)]:
            target = Path(self.build_lib, "cellrepro", file)
            self.mkpath(str(target.parent))
            self.copy_file(str(file), str(target))


setup(cmdclass={"build_py": WithNotebooks})
