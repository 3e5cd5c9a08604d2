"""The search for the condition under which a result was made, where only some of it is known."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace

import numpy as np

from cellrepro.comparison.object_matching import overlap
from cellrepro.errors import CellreproError
from cellrepro.explanation.conditions import IMAGE_CROP, Condition, Crop, changed_names, without
from cellrepro.explanation.fit import PROBABLY_ANOTHER, Fit, NetworkDoubt, Reproduced, ValueTried
from cellrepro.explanation.image_readings import can_be_read
from cellrepro.explanation.search_values import (
    COARSE,
    FEW,
    NUMBERS,
    PAIRS,
    STEPS,
    TRIED,
    USUAL_NUMBERS,
    around,
    multiples,
    neighbours,
)
from cellrepro.explanation.trials import (
    Gap,
    Trial,
    Trials,
    condition_digest,
    gap_between,
    is_elsewhere,
    n_differing,
    nearest,
)
from samebits.errors import BadInput

MOST_CHANGES = 3
"""Changes beside what is recorded; more than these explain nothing to anybody."""

_MOST_ROUNDS = 4  # in which each change is set anew beside the others
_LESS = 0.8  # of the differing pixels that one more change must leave at most
_STARTS = 2  # pairs of values around which the search goes on
_SHIFTS = (-1, 1, -2, 2, -3, 3)  # pixels by which a crop may lie elsewhere than its masks say

DECIDING = ("diameter", "flow_threshold", "cellprob_threshold", "normalize.percentile")
"""With these recorded, the other settings can change no more than a part of the cells."""


class Search:
    """Looks for the condition that comes closest to one result, by a greedy search.

    It starts from the values in ``near``, or else the usual ones. Then it adds one change after the
    other, each the best of all that are tried, as long as it explains a good part of what is left.
    Pairs of settings that hide each other are searched together, too: the best diameter beside the
    usual threshold may be far from the one beside the right threshold.
    """

    def __init__(
        self,
        trials: Trials,
        target: np.ndarray,
        *,
        known: Condition,
        is_ended: Callable[[], bool] | None = None,
        is_network_certain: bool = False,
    ) -> None:
        self._trials = trials
        self._target = target
        self._known = known
        self._near: Condition = {}
        self._is_ended = is_ended or (lambda: False)
        self._is_network_certain = is_network_certain
        self._stop_at = math.inf
        self._stopped = False
        self._tried: set[str] = set()
        self._start_condition: Condition = known
        self._gap_of_nothing = gap_between(np.zeros_like(target), target)

    @property
    def seconds_left(self) -> float:
        """The time that is left to it."""
        return max(0.0, self._stop_at - time.monotonic())

    @property
    def n_values_left(self) -> int:
        """Values that were not yet tried one by one."""
        firsts = ({**self._start_condition, **change} for change in self.first_round())
        return sum(condition_digest(each) not in self._tried for each in firsts)

    @property
    def is_settled(self) -> bool:
        """Whether all that decides is recorded, and only the network may be another."""
        return self._known.keys() >= {*DECIDING} and not self._is_network_certain

    def doubts_network(self) -> bool:
        """Whether the network is probably another: the recorded values do not make the result."""
        if not self.is_settled or not self._target.any():
            return False
        start = self._start()
        return not self._as_fit(start, start).came_to_something

    def fit(
        self,
        *,
        near: Condition,
        stop_at: float = math.inf,
        is_other_made: bool = False,
    ) -> Fit:
        """Search for the condition that comes closest, until a time of the monotonic clock.

        Where the network has made the other result, what is recorded of this one may be untrue.
        """
        self._near = near
        self._stop_at = stop_at
        self._stopped = False
        self._tried.clear()
        start = self._start()
        if not self._target.any():
            return self._as_fit(start, start, empty_with=self._emptying(start))
        best = start if start.exact else self._with_one_more(start)
        if is_other_made and not best.exact:
            against_record = self.fit_against_record(near=near, stop_at=stop_at)
            if against_record is not None:
                return against_record
        is_doubted = self.doubts_network() and not self._as_fit(best, start).came_to_something
        if is_doubted and not (is_other_made and self._stopped):
            return self._as_fit(best, start, network_doubt=PROBABLY_ANOTHER)
        if not best.exact:
            best = self._with_more(best, start)
        return self._as_fit(best, start)

    def start_alone(self, *, near: Condition) -> Fit:
        """Try what is recorded and near, without a search."""
        self._near = near
        self._tried.clear()
        start = self._start()
        fit = self._as_fit(start, start)
        return fit if fit.came_to_something else replace(fit, network_doubt="not searched")

    def fit_like(self, other: Condition) -> Fit:
        """Try what makes the other result, whatever is recorded of this one."""
        start = self._start()
        return self._as_fit(self._best([other]), start)

    def shows_what(self, other: Search) -> bool:
        """Whether the results of both searches have the same cells."""
        a, b = self._target, other._target
        return a.shape == b.shape and not gap_between(a, b).n_differing

    def fit_against_record(self, *, near: Condition, stop_at: float) -> Fit | None:
        """Try other values than the recorded ones: of one setting, then as if none were recorded.

        None where they do not make the result. What was changed before a file was saved is
        recorded, though the masks are older.
        """
        self._near = near
        self._stop_at = stop_at
        self._stopped = False
        start = self._start()
        one_other = [{**start.condition, **each} for each in self._changes_of(self._known)]
        if not one_other or self._is_over():
            return None
        best = self._best(one_other)
        for name in changed_names(start.condition, best.condition):
            best = self._refined(best, name)
        fit = self._as_fit(best, start)
        if fit.found != Reproduced.MADE and not self._is_over():
            fit = replace(self._fit_without_record(near, stop_at), start=start.condition)
        return fit if fit.found == Reproduced.MADE else None

    def _fit_without_record(self, near: Condition, stop_at: float) -> Fit:
        """Search as if no setting that can be tried were recorded."""
        known = {name: value for name, value in self._known.items() if name not in TRIED}
        search = Search(self._trials, self._target, known=known, is_ended=self._is_ended)
        fit = search.fit(near=near, stop_at=stop_at)
        self._stopped = self._stopped or fit.stopped
        return fit

    def without_doubt_if_stopped(self, fit: Fit) -> Fit:
        """Doubt no network where time was up before other values than the recorded were tried."""
        return replace(fit, stopped=True, network_doubt="") if self._stopped else fit

    def first_round(self) -> list[Condition]:
        """Give the changes that are tried first, one by one; later rounds go on from the best."""
        return list(self._untried())

    # -- the search, from the outside in

    def _start(self) -> Trial:
        """The better of what is recorded beside near and beside usual values."""
        start = self._best([{**self._near, **self._known}, self._known])
        if IMAGE_CROP in self._known and not start.exact:
            start = self._with_crop_moved(start)
        self._start_condition = start.condition
        return start

    def _with_more(self, best: Trial, start: Trial) -> Trial:
        """Add changes to the best first one, and to the best of each pair."""
        beginnings = [best]
        for pair in PAIRS:
            if self._is_over():
                break
            is_searched = not self._known.keys() & {*pair} and not is_elsewhere(self._known)
            if is_searched and not beginnings[-1].exact:
                beginnings.append(self._with_pair(pair, start))
        for beginning in sorted(beginnings, key=n_differing):
            best = nearest([best, self._with_further_changes(beginning, start)])
            if best.exact:
                break
        return best

    def _with_further_changes(self, best: Trial, start: Trial) -> Trial:
        """Add one change after the other, as long as each explains a good part of what is left."""
        while not best.exact and not self._is_over():
            if len(changed_names(start.condition, best.condition)) >= MOST_CHANGES:
                break
            with_more = self._with_one_more(best)
            if with_more.condition == best.condition:
                break
            best = with_more
        return best

    def _with_one_more(self, best: Trial) -> Trial:
        """Add the one change that leaves least; none if none helps enough."""
        changes = list(self._untried())
        if not changes:
            return best
        with_change = self._best([{**best.condition, **change} for change in changes])
        with_change = self._polished(with_change)
        if IMAGE_CROP in self._known and not with_change.exact:
            with_change = self._with_crop_moved(with_change)
        n_to_reach = _LESS * best.gap.n_differing
        return best if with_change.gap.n_differing > n_to_reach else with_change

    def _with_pair(self, pair: tuple[str, str], start: Trial) -> Trial:
        """Set two settings that hide each other: first on a coarse grid, then around its best."""
        first, second = pair
        coarse: list[Trial] = []
        for value in COARSE[first]:
            if coarse and self._is_over():
                break
            coarse.append(self._best_pair(start, {first: value}, second, FEW[second]))
            if coarse[-1].exact:
                break
        coarse.sort(key=n_differing)
        polished = [self._polished(coarse[0])]
        for beginning in coarse[:_STARTS]:
            if polished[-1].exact or self._is_over():
                break
            polished.append(self._polished(self._refined_pair(pair, beginning, start)))
        return nearest(polished)

    def _refined_pair(self, pair: tuple[str, str], best: Trial, start: Trial) -> Trial:
        """Refine the first setting of a pair step by step, each value beside the second's best."""
        first, second = pair
        low, high = neighbours(first, best.condition[first])
        for step in STEPS[first]:
            values = around(NUMBERS[second], best.condition[second])
            finer = [best]
            for value in multiples(low, high, step):
                if self._is_over():
                    break
                finer.append(self._best_pair(start, {first: value}, second, values))
            best = nearest(finer)
            low = best.condition[first] - step
            high = best.condition[first] + step
        return best

    def _best_pair(
        self, start: Trial, change: Condition, second: str, values: Iterable[float]
    ) -> Trial:
        """Make one change, beside the value of a second setting that suits it best."""
        return self._best([{**start.condition, **change, second: value} for value in values])

    def _with_crop_moved(self, best: Trial) -> Trial:
        """Move a crop by a few pixels: masks show only about where it lies."""
        for axis in (0, 1, 0):
            crops = [_shifted(best.condition[IMAGE_CROP], axis, by) for by in _SHIFTS]
            within = [crop for crop in crops if self._is_within(crop)]
            best = self._best_with_values(best, IMAGE_CROP, within)
        return best

    def _is_within(self, crop: Crop) -> bool:
        sizes = self._trials.image.shape[:2]
        return all(low >= 0 and high <= size for (low, high), size in zip(crop, sizes, strict=True))

    def _polished(self, best: Trial) -> Trial:
        """Set each change to its best value beside the others, and drop those that do nothing."""
        for _ in range(_MOST_ROUNDS):
            before = best
            searched = [name for name in best.condition if name not in self._known]
            for name in searched:
                if self._is_over():
                    break
                best = self._best_with_values(best, name, TRIED.get(name, ()))
                best = self._refined(best, name)
                best = self._best([without(best.condition, name), best.condition])
            if best.exact or best.gap.n_differing >= before.gap.n_differing:
                break
        return best

    def _refined(self, best: Trial, name: str) -> Trial:
        """Try numbers between the best and its neighbours, in finer and finer steps."""
        if name not in NUMBERS or not isinstance(best.condition.get(name), int | float):
            return best
        low, high = neighbours(name, best.condition[name])
        for step in STEPS[name]:
            if best.exact or self._is_over():
                break
            best = self._best_with_values(best, name, multiples(low, high, step))
            low = max(low, best.condition[name] - step)
            high = min(high, best.condition[name] + step)
        return best

    def _best_with_values(self, best: Trial, name: str, values: Iterable[object]) -> Trial:
        """Set a name to the value that leaves least; unchanged if none helps."""
        changed = [{**best.condition, name: value} for value in values]
        return self._best([best.condition, *changed])

    # -- its parts

    def _best(self, conditions: Iterable[Condition]) -> Trial:
        """The nearest of these conditions, as far as time allows; one is tried in any case."""
        trials: list[Trial] = []
        empty: list[Trial] = []
        refusal: CellreproError = BadInput("no condition was given")
        for condition in conditions:
            if trials and self._is_over():
                break
            self._tried.add(condition_digest(condition))
            try:
                trial = Trial(self._trials.gap(condition, self._target), condition)
            except CellreproError as error:  # Cellpose may ignore one of these beside the others
                refusal = error
                continue
            if trial.gap == self._gap_of_nothing and not trial.exact:
                empty.append(trial)  # no cell is nearer to few cells than many more of them
                continue
            trials.append(trial)
            if trial.exact:
                break
        if not (trials or empty):
            raise refusal
        return nearest(trials or empty)

    def _is_over(self) -> bool:
        """Whether time is up or the user has ended the search; remembered for the fit."""
        if time.monotonic() > self._stop_at or self._is_ended():
            self._stopped = True
        return self._stopped

    def _untried(self) -> Iterator[Condition]:
        """Every change of what nobody recorded."""
        if is_elsewhere(self._known):
            return  # each would take a process of its own
        yield from self._changes_of(TRIED.keys() - self._known.keys())

    def _changes_of(self, names: Collection[str]) -> Iterator[Condition]:
        """Every value that is tried of some settings, one by one."""
        for name, values in TRIED.items():
            if name not in names:
                continue
            of_masks = self._sizes_told_by_masks() if name == "min_size" else ()
            # Where another one is recorded, the usual value is worth a trial.
            usual = (USUAL_NUMBERS[name],) if name in self._known and name in NUMBERS else ()
            for value in (*of_masks, *values, *usual):
                if can_be_read(self._trials.image, name, value):
                    yield {name: value}

    def _sizes_told_by_masks(self) -> list[int]:
        """Least sizes with which the smallest cell stays: its own, and round ones just below."""
        areas = np.unique(self._target[self._target > 0], return_counts=True)[1]
        smallest = int(areas.min(initial=areas.max(initial=0)))
        sizes = dict.fromkeys(smallest // step * step for step in (50, 10, 1))
        return [size for size in sizes if size > USUAL_NUMBERS["min_size"]]

    def _emptying(self, start: Trial) -> tuple[ValueTried, ...]:
        """The changes with which no cell is found, unless none is found without them.

        A record that finds cells is not true of it.
        """
        if start.exact or is_elsewhere(self._known):
            return ()
        emptying: list[ValueTried] = []
        for change in self._changes_of(TRIED.keys()):
            if self._is_over():
                break
            condition = {**start.condition, **change}
            self._tried.add(condition_digest(condition))
            gap = self._trials.gap_if_possible(condition, self._target)
            if gap == Gap(0, 0):
                emptying += [ValueTried(name, value) for name, value in change.items()]
        return tuple(emptying)

    def _as_fit(
        self,
        best: Trial,
        start: Trial,
        *,
        empty_with: tuple[ValueTried, ...] = (),
        network_doubt: NetworkDoubt = "",
    ) -> Fit:
        table = overlap(self._trials.masks(best.condition), self._target)
        is_whole_a = table.pixels == table.areas_a[table.rows]
        is_whole_b = table.pixels == table.areas_b[table.columns]
        recorded = dict(start.condition)
        if IMAGE_CROP in best.condition:
            recorded[IMAGE_CROP] = best.condition[IMAGE_CROP]
        return Fit(
            nearest=best.condition,
            start=recorded,
            gap=best.gap,
            of_cells=table.n_a + table.n_b,
            n_target=table.n_b,
            exact=int(np.count_nonzero(is_whole_a & is_whole_b)),
            n_pixels=int(np.count_nonzero(self._target)),
            tried=len(self._tried),
            n_values=len(self.first_round()),
            n_values_left=self.n_values_left,
            stopped=self._stopped,
            empty_with=empty_with,
            network_doubt=network_doubt,
        )


def _shifted(crop: Crop, axis: int, by: int) -> Crop:
    """A crop that lies some pixels further along an axis, 0 for rows and 1 for columns."""
    rows, columns = crop
    if axis == 0:
        return (rows[0] + by, rows[1] + by), columns
    return rows, (columns[0] + by, columns[1] + by)
