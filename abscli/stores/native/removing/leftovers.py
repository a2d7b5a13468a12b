"""Files of our own store that nothing refers to: how large they are, and whether `abs gc` would remove them now."""

from __future__ import annotations

import shlex

from abscli.planner.retention import MIN_AGE, Retention
from abscli.report.findings import StoreReport
from abscli.stores.native.removing.garbage import plan_removal
from abscli.text.validate import Leftovers, sizes_of, unreferenced
from formats.errors import FormatError
from formats.native.store import NativeStore
from formats.storage import Storage


def leftovers(storage: Storage, path: str, report: StoreReport) -> Leftovers | None:
    """What is known of them; None if there are none."""
    paths = unreferenced(report)
    if not paths:
        return None
    sizes, command = sizes_of(storage, paths), f"abs gc {shlex.quote(path)}"
    try:
        removal = plan_removal(NativeStore(storage), Retention(), min_age=MIN_AGE)
    except FormatError as error:
        return Leftovers(sizes, None, f"abs gc removes nothing while the store's own facts are damaged ({error})")
    ours = [orphan for orphan in removal.orphans if orphan.path in paths]
    if any(orphan.removable for orphan in ours):
        return Leftovers(sizes, command)
    if ours:
        why_not = "written less than an hour ago: abs gc leaves it, somebody may be about to refer to it"
        return Leftovers(sizes, f"{command} --min-age 0s", why_not)
    blocked = "; ".join(f"epoch {epoch}: {why}" for epoch, why in sorted(removal.blocked.items())[-1:])
    return Leftovers(sizes, None, f"abs gc leaves it: {blocked or 'an epoch that is kept may need it'}")
