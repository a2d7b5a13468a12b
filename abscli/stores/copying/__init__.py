"""Copies of checkpoints, which are there whole or do not count: the one writer of them, with a way for each place."""

from abscli.stores.copying.folder import NewFolder, new_folder
from abscli.stores.copying.targets import check_folder, check_target, new_copy, roots, work_of
from abscli.stores.copying.writer import NewCopy

__all__ = ("NewCopy", "NewFolder", "check_folder", "check_target", "new_copy", "new_folder", "roots", "work_of")
