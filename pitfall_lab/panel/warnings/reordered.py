"""Warns of features and labels whose rows were put into two different orders (:func:`reordered`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pitfall_lab.panel.cells_run import Ran
from pitfall_lab.panel.warnings.message import Said, called, cell, warning
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.row_orders import Reordered


def reordered(found: Reordered, ran: Ran) -> dict[str, Any]:
    """The warning about features and labels whose rows are in two different orders.

    ``found`` is the finding in the live objects, ``ran`` are the runs of cells; the warning is the dict of
    :func:`.message.warning`.
    """
    here = called(found.cell)
    of = T("", "")
    if found.features != found.source:
        of = T(
            f" (the rows of `{found.source}` and `{found.answers}`)", f"（`{found.source}` 与 `{found.answers}` 的行）"
        )
    said = T(
        f"{here} put `{found.features}` and `{found.labels}`{of.en} into two different orders: {found.wrong} of "
        f"{found.rows} rows now have another row's label.",
        f"{here} 把 `{found.features}` 和 `{found.labels}`{of.zh}排成了两种不同的次序：{found.rows} 行中有 "
        f"{found.wrong} 行对应的是别的行的标签。",
    )
    why = T(
        "Each shuffle draws an order of its own. Features and labels belong together by their place, and nothing "
        "raises when the places no longer fit: the loss goes down to that of guessing.",
        "每次打乱都会抽取一个新的次序。特征与标签靠位置对应，位置对不上时不会报错：损失只会降到瞎猜的水平。",
    )
    fix = T(
        "Draw one order and use it for both: `order = torch.randperm(len(X))`, then `X[order]` and `y[order]`.",
        "只抽取一个次序，两者都用它：`order = torch.randperm(len(X))`，然后 `X[order]` 和 `y[order]`。",
    )
    return warning(
        "two-orders",
        "silent",
        Said(said, why, fix, found.path),
        cell(ran, found.cell, "changed", found.features),
        "PL414",
    )
