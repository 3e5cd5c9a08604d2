"""The result of a verification: whether all is as it was made, and who says so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cellrepro.comparison.verdicts import Verdict
from cellrepro.exchange.problem import Problem, problem_lines
from cellrepro.exchange.signed.signature_check import SignatureCheck
from cellrepro.exchange.verified import VerifiedModel, VerifiedRepeat, worst_signature
from samebits.results import Result, Row, derived
from samebits.words import amount, joined

if TYPE_CHECKING:
    from cellrepro.exchange.replay import Replay

TargetKind = Literal["run", "passport", "file", "store"]


@dataclass(frozen=True, repr=False)
class Verification(Result):
    """Whether something that was stored or sent is what its digests say, and who says so."""

    target: str
    """As it was named."""
    kind: TargetKind
    """Kind of the target."""
    problems: tuple[Problem, ...]
    """Everything that is not as it was made."""
    repeats: tuple[VerifiedRepeat, ...]
    """Repeats, once for each of their passports; of a store those of which it keeps one."""
    models: tuple[VerifiedModel, ...]
    """Files with networks, of which something is attested."""
    files: int
    """Number of files that were compared with a digest."""
    vacuous: Mapping[str, tuple[str, ...]]
    """Why repeats prove nothing, by their names."""
    notes: tuple[str, ...]
    """What a user should know though it is no fault, a sentence each."""
    _n_repeats: int
    """Number of repeats, with a passport or without."""
    replay: Replay | None = None
    """None without ``--replay``, and where a problem was found."""

    @derived
    def verdict(self) -> Verdict:
        """``different`` where a problem was found, else that of the replay; without one
        ``identical``, or ``vacuous`` where of every repeat nothing was trained or found, or no file
        is here that could have been held to a digest."""
        if self.problems:
            return Verdict.DIFFERENT
        if self.replay is not None:
            return self.replay.verdict
        if self._is_of_models_alone:
            return Verdict.IDENTICAL
        if len(self.vacuous.keys() - self._absent) == self._n_compared:
            return Verdict.VACUOUS
        return Verdict.IDENTICAL

    @property
    def _absent(self) -> frozenset[str]:
        """Names of the repeats of which only a passport is here."""
        return frozenset(repeat.name for repeat in self.repeats if not repeat.is_here)

    @property
    def _n_compared(self) -> int:
        """Number of repeats whose files were looked at."""
        return self._n_repeats - len(self._absent)

    @property
    def _networks_here(self) -> list[str]:
        """Files with networks that were looked at."""
        return [model.file for model in self.models if model.is_here]

    @property
    def _is_of_models_alone(self) -> bool:
        """Whether it holds no run, but files with networks that are here."""
        return not self._n_repeats and bool(self._networks_here)

    @derived
    def signature(self) -> SignatureCheck:
        """The signature that promises least, of passports and statements about models."""
        return worst_signature([*self.repeats, *self.models])

    @property
    def differs(self) -> bool:
        """Whether it is not shown that all is as it was made."""
        return bool(self.verdict != Verdict.IDENTICAL)

    def sentence(self) -> str:
        """Say the verdict, and what it is over."""
        if self.replay is not None:
            return self.replay.sentence()
        if self.problems:
            problems = amount(len(self.problems), "problem")
            over = f"{amount(self.files, 'file')} of {amount(self._n_repeats, 'repeat')}"
            return f"different: {self.target} is not as it was made, {problems} among {over}"
        if self._is_of_models_alone:
            return f"intact: {self._networks_in_words()}"
        if not self._n_repeats:
            return f"vacuous: {self.target} holds no run, so nothing is proven"
        if not self._n_compared:
            known = f"{self.target} does not contradict itself"
            no_file = "no file"
            if self._networks_here:
                known = self._networks_in_words()
                no_file = "no file of a run"
            return (
                f"vacuous: {known}, and none of its runs is here, so {no_file} was compared: "
                "--replay computes one again"
            )
        if self.verdict == Verdict.VACUOUS:
            why = next(
                reasons for name, reasons in self.vacuous.items() if name not in self._absent
            )
            return f"vacuous: {self.target} is as it was made, and proves nothing: {joined(why)}"
        return f"intact: {self._compared_in_words()} in {self.target} are as they were made"

    def _networks_in_words(self) -> str:
        files = joined(self._networks_here)
        are = "is the file" if len(self._networks_here) == 1 else "are the files"
        return f"{files} {are} of which {self.target} speaks"

    def _compared_in_words(self) -> str:
        """Count what was compared: always several files, as each repeat has a spec and more."""
        n_networks = len(self._networks_here)
        n_files = self.files - n_networks
        over = f"{amount(n_files, 'file')} of {amount(self._n_compared, 'repeat')}"
        if not n_networks:
            return over
        return f"{over} and {amount(n_networks, 'file')} with a network"

    def rows(self) -> Sequence[Row]:
        """Give each repeat with its passport, and then each problem."""
        of_repeats = [
            {"what": one.name, "found": str(one.signature), "receipts": len(one.receipts)}
            for one in self.repeats
        ]
        of_problems = [{"what": p.where, "found": p.what, "receipts": ""} for p in self.problems]
        return [*of_repeats, *of_problems]

    def lines(self) -> Sequence[str]:
        """Give who signed, what is wrong, and what the replay gave."""
        return [*self._lines()]

    def _lines(self) -> Iterator[str]:
        yield from [self.sentence()] if self.replay is None else self.replay.lines()
        yield from problem_lines(self.problems)
        for repeat in self.repeats:
            yield f"  {repeat.name}: passport {repeat.passport[:12]}, {repeat.signature}"
            for receipt in repeat.receipts:
                yield f"    replayed on {receipt.machine}: {receipt.verdict}, {receipt.signature}"
            if repeat.not_here:
                holder = "file" if self.kind == "file" else "store"
                yield f"    not in the {holder}: {', '.join(repeat.not_here)}"
        for model in self.models:
            yield f"  {model.file}: SHA-256 {model.sha256[:12]}, {model.signature}"
        for note in self.notes:
            yield f"  {note}"
