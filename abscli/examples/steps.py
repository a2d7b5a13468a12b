"""The imports job's function: what a reached module imports is reached, too."""

import pyarrow as pa
from graph import IMPORTS  # written beside this file by the demo: module -> the modules it imports


def further(pairs: pa.RecordBatch) -> pa.RecordBatch:
    """(module, reached) -> (module, what `reached` imports), row by row."""
    modules, reached = [], []
    for module, through in zip(pairs["module"].to_pylist(), pairs["reached"].to_pylist(), strict=True):
        following = IMPORTS.get(through, ())
        modules.extend([module] * len(following))
        reached.extend(following)
    return pa.record_batch([pa.array(modules, pa.string()), pa.array(reached, pa.string())], ["module", "reached"])
