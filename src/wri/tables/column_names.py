"""Names of encoded columns as a reader of the table knows them.

scikit-learn calls them `missingindicator_bmi` and `ward_north`; people say "bmi is missing" and
"ward = north".
"""

from collections.abc import Sequence

MISSING = "missingindicator_"
INFREQUENT = "infrequent_sklearn"


def readable_names(encoded: Sequence[str], raw: Sequence[str]) -> tuple[str, ...]:
    """Name encoded columns by the raw columns that they come from.

    Parameters
    ----------
    encoded : sequence of str
        What scikit-learn's `get_feature_names_out` gives.
    raw : sequence of str
        Columns of the table.

    Returns
    -------
    tuple of str
        A name of the table stays as it is; others are different from each other as before.
    """
    names = tuple(_readable(name, {*raw}) for name in encoded)
    return names if len({*names}) == len(names) else tuple(encoded)


def owners_of(encoded: Sequence[str], raw: Sequence[str]) -> tuple[str, ...]:
    """Return the raw column that each encoded column comes from."""
    return tuple(_split(name, {*raw})[0] for name in encoded)


def _readable(name: str, raw: set[str]) -> str:
    owner, category = _split(name, raw)
    if category is None:
        return owner
    if category == MISSING:
        return f"{owner} is missing"
    return f"{owner} = {'a rare category' if category == INFREQUENT else category}"


def _split(name: str, raw: set[str]) -> tuple[str, str | None]:
    """Split an encoded name into its raw column and the category, `MISSING` or None."""
    if name in raw:
        return name, None
    if name.startswith(MISSING) and name.removeprefix(MISSING) in raw:
        return name.removeprefix(MISSING), MISSING
    owners = [column for column in raw if name.startswith(f"{column}_")]
    if not owners:
        return name, None
    owner = max(owners, key=len)
    return owner, name.removeprefix(f"{owner}_")
