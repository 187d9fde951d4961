"""One run at W&B that a mirror writes, by W&B's own package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cli.mirrors.copying import ReceiverAway
from cli.mirrors.wandb_rows import STEP, Row, values_in
from cli.terminal.errors import CommandFailed

EXIT_CODES = {"succeeded": 0, "failed": 1, "stopped": 255}
FOLLOWED = "rankzero_followed"
"""In the config of a copy that was made while the run trained: its rows are those of a journal."""


class WandbCopy:
    """An open run; row n has W&B's step n, so that W&B's number of rows says which are there."""

    def __init__(self, entity: str, project: str, run: Mapping[str, Any], params: Mapping[str, Any]) -> None:
        """Open the run with the id, name and tags of ours. Raises ReceiverAway, CommandFailed."""
        wandb = _package()
        # Of this machine nothing is told: the run was not here.
        quiet = wandb.Settings(
            silent=True, console="off", disable_git=True, disable_code=True, x_disable_meta=True, x_disable_stats=True,
            x_disable_machine_info=True, x_save_requirements=False, reinit="create_new",
        )  # fmt: skip
        self._id = run["id"]
        try:
            self._copy = wandb.init(
                entity=entity, project=project, id=run["id"], name=run["name"], config=dict(params),
                tags=list(run["tags"]), resume="allow", settings=quiet,
            )  # fmt: skip
        except wandb.Error as error:
            raise ReceiverAway(f"W&B did not take run {run['id']}: {error}.") from None
        self._rows = self._had = int(self._copy.starting_step)  # `step` is 0 until the first row
        self._copy.define_metric("*", step_metric=STEP)

    @property
    def url(self) -> str:
        """Its page; "" offline."""
        return self._copy.url or ""

    def require_rows_of(self, known: int, followed: bool) -> None:
        """Raises CommandFailed where W&B has rows whose points are unknown here."""
        is_other = self._had and self._copy.config.get(FOLLOWED, False) is not followed
        if self._had > known or is_other:
            self._copy.finish(EXIT_CODES["stopped"])
            raise CommandFailed(
                f"W&B has {self._had} rows of run {self._id} that another mirror wrote. Go on with that one, on its "
                "machine and with its WANDB_DIR; or delete the copy at W&B and call this again."
            )

    def log(self, rows: Sequence[Row]) -> int:
        """Log those of all rows that W&B lacks; return the number of their points. Raises CommandFailed."""
        return self.log_more(rows[self._rows :])

    def log_more(self, rows: Sequence[Row]) -> int:
        """Log the next rows; return the number of their points. Raises CommandFailed."""
        try:
            for row in rows:
                self._copy.log(row, step=self._rows, commit=True)
                self._rows += 1
        except OSError as error:
            raise CommandFailed(
                f"W&B's service ended ({error}). The same command goes on where this one stopped."
            ) from None
        return values_in(rows)

    def finish(self, exit_code: int) -> None:
        """Upload what is left and end the run."""
        self._copy.finish(exit_code)


def is_offline() -> bool:
    """Whether the package is set to write files instead of uploading. Raises CommandFailed without the package."""
    return str(_package().setup().settings.mode) != "online"


def _package() -> Any:
    try:
        import wandb
    except ImportError:
        raise CommandFailed("wandb is not installed beside the command: pip install 'rankzero[wandb]'.") from None
    return wandb
