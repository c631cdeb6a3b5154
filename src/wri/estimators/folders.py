"""Saving and loading, for estimators and pipelines alike."""

import os
from typing import Self


class SavedInFolders:
    """A fitted model that can be written to a folder and read from one."""

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the fitted model to a folder, which holds no code; see `wri.estimators.saving`.

        Parameters
        ----------
        folder
            A new or empty folder, or one with a saved model and nothing else, which is replaced.
        """
        from wri.estimators.saving import save  # it knows all estimators and so comes after them

        save(self, folder)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """The model that `save` wrote, with the same predictions to the last bit.

        Parameters
        ----------
        folder
            From anybody: a damaged or hostile one is an error, and nothing in it is run.
        """
        from wri.estimators.saving import load

        return load(folder, cls)
