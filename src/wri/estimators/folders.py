"""Mix-in class for saving and loading."""

import os
from importlib import import_module
from typing import Self


class SavedInFolders:
    """Mix-in of models that can be saved to a folder and loaded from it."""

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Save the fitted model to a folder, which then holds no code.

        Parameters
        ----------
        folder : path-like
            A new or empty folder, or the folder of a saved model, which is replaced.

        Raises
        ------
        InputError
            If the model cannot be saved, or the folder holds other files.
        """
        import_module("wri.saving").save(self, folder)  # imported here: it imports all estimators

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """Load a saved model, with the same predictions to the last bit.

        Parameters
        ----------
        folder : path-like
            Folder that `save` wrote. Folders from strangers are safe: a damaged or hostile folder
            is an error, and nothing in it is run.

        Returns
        -------
        model : object of this class
            The fitted model.

        Raises
        ------
        InputError
            If the folder holds no saved model, a damaged one, or one of another class.
        """
        return import_module("wri.saving").load(folder, cls)
