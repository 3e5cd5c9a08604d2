"""Faults of figures, pages, the report and what notebooks show."""

from faults.by_name import breaks


@breaks(
    "cellrepro.show.pages.page_file:rendered",
    "Names of files, images and runs are text on a page, never HTML.",
    tests=[
        "tests/show/test_comparison_page.py::test_names_are_text",
        "tests/show/test_report.py::test_hostile_names_are_text",
    ],
)
def names_are_html(rendered):
    from html import unescape

    return lambda *template, **values: unescape(rendered(*template, **values))


@breaks(
    "cellrepro.show.explorer.page_part:json_in_a_script",
    "A name in the data of the explorer's page ends no element of that page.",
    tests=["tests/show/test_explorer_page.py::test_no_name_ends_the_script"],
)
def a_name_ends_the_script(_json_in_a_script):
    import json

    return json.dumps


@breaks(
    "cellrepro.show.pages.parts:_plain",
    "No cell of a page's CSV files is a formula that a spreadsheet would run.",
    tests=["tests/show/test_report.py::test_no_cell_of_a_csv_file_is_a_formula"],
)
def formulas_stay_formulas(_plain):
    return lambda value: getattr(value, "value", value)


@breaks(
    "cellrepro.show.tables.frames:markdown",
    "A name of an image or a run that is written as a link or HTML is text in a notebook.",
    tests=["tests/show/test_tables.py::test_names_from_outside_are_no_html"],
)
def a_name_becomes_a_link(_markdown):
    from IPython.display import Markdown

    return Markdown


@breaks(
    "cellrepro.show.explorer.read_view:refuse_picture",
    "An image that is given in the place of masks is refused.",
    tests=[
        "tests/show/test_explorer_page.py"
        "::test_what_does_not_belong_together_is_refused_with_the_cause"
    ],
)
def a_picture_is_explored_as_masks(_refuse_picture):
    return lambda name, labels: None


@breaks(
    "cellrepro.show.report.section_receipts:check_signature",
    "The report calls the signature of a receipt good only where it was checked.",
    tests=["tests/show/test_report.py::test_receipts_of_others_are_shown_with_who_signed_them"],
)
def every_signature_looks_good(check_signature):
    from dataclasses import replace

    return lambda *signed: replace(check_signature(*signed), state="good")


@breaks(
    "cellrepro.show.pages.compare:image_weight",
    "Of several images a page shows the one on which most cells differ.",
    tests=[
        "tests/show/test_comparison_page.py"
        "::test_of_several_images_the_one_is_shown_on_which_most_cells_differ"
    ],
)
def the_quietest_image_is_shown(image_weight):
    return lambda comparison: -image_weight(comparison)


@breaks(
    "cellrepro.show.report.section_worst:_Candidate.weight",
    "The worst image of the report is the one on which most cells changed, not most pixels.",
    tests=["tests/show/test_report.py::test_the_worst_image_is_the_one_whose_cells_change"],
)
def the_worst_image_is_that_of_most_pixels(_weight):
    return lambda candidate: candidate.pair.images[candidate.image].n_differing


@breaks(
    "cellrepro.show.figures.pixels:category_picture",
    "The pixels that only A has are painted in the colour of A, and those of B in that of B.",
    tests=["tests/show/test_figures.py::test_difference_paints_what_differs"],
)
def only_a_has_the_colour_of_b(category_picture):
    import numpy as np

    exchanged = np.array([0, 1, 3, 2, 4])
    return lambda background, categories, **size: category_picture(
        background, exchanged[categories], **size
    )


@breaks(
    "cellrepro.show.figures.growth:_draw_cells",
    "The curve of growth shows what only A has as lost, and what only B has as gained.",
    tests=[
        "tests/show/test_figures_divergence.py"
        "::test_growth_has_a_panel_for_everything_that_was_measured"
    ],
)
def lost_cells_are_shown_as_gained(_draw_cells):
    from dataclasses import replace

    return lambda axes, masked, bar_width: _draw_cells(
        axes, [replace(one, lost=one.gained, gained=one.lost) for one in masked], bar_width
    )


@breaks(
    "cellrepro.show.tables.masks:score_of",
    "Precision is the share of the second side's cells that the first has, recall the reverse.",
    tests=["tests/show/test_tables.py::test_scores_side_by_side"],
)
def precision_and_recall_are_exchanged(score_of):
    other = {"precision50": "recall50", "recall50": "precision50"}
    return lambda comparison, key: score_of(comparison, other.get(key, key))


@breaks(
    "cellrepro.show.watched_grids:_ended_well",
    "A spec that failed is never shown as done, also when its grid has gone.",
    tests=["tests/show/test_watched_grids.py::test_a_grid_that_vanishes_has_ended_well"],
)
def a_failed_spec_becomes_done(_ended_well):
    def ended(status):
        rows = [row.model_copy(update={"status": "done"}) for row in status.rows]
        return status.model_copy(update={"rows": rows, "ended": True})

    return ended


@breaks(
    "cellrepro.show.figures.pixels:is_photograph",
    "The channels of a photograph are stretched alike, so that its colours stay what they are.",
    tests=["tests/show/test_figures.py::test_a_photograph_keeps_its_colours"],
)
def each_channel_of_a_photograph_is_stretched(_is_photograph):
    return lambda _: False


@breaks(
    "cellrepro.show.local_server:_same",
    "Nobody opens a page of this computer without its token.",
    tests=["tests/show/test_local_server.py::test_nobody_is_let_in_without_the_token"],
)
def every_token_opens_the_page(_same):
    return lambda given, secret: True


@breaks(
    "cellrepro.show.local_server:_Handler._refuse_other_pages",
    "A page of another server that somebody visits can send nothing to a page of this computer.",
    tests=["tests/show/test_local_server.py::test_pages_of_other_servers_can_ask_for_nothing"],
)
def every_page_may_ask(_refuse_other_pages):
    return lambda handler, origin: None


@breaks(
    "cellrepro.show.pages.dropped_files:own_name",
    "A file that is dropped on a page stays in the folder of that page, whatever its name.",
    tests=["tests/show/test_open_page.py::test_names_lead_nowhere"],
)
def a_name_leads_to_another_folder(_own_name):
    return lambda name: name or "file"


@breaks(
    "cellrepro.show.explorer.live_view:LiveView._ask_when_still",
    "When sliders stand still, the masks of eval are asked for.",
    tests=[
        "tests/show/test_live_settings.py::test_a_preview_while_one_drags_and_exact_masks_when_it_stands_still"
    ],
)
def a_preview_stays_a_preview(ask_when_still):
    return lambda view, settings: None
