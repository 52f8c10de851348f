"""How are letters drawn where there are no fonts? As strokes between points of a grid, for pictures in PNG.

A bare machine has no font that one could count on, and a picture of numbers needs few signs. Each sign is written as
strokes apart by blanks, each a row of points of two digits: how far right, and how far down. Capitals reach from 0 to
the base line at 6, small letters from 2, what hangs below to 8.
"""

from __future__ import annotations

_STROKES = {
    "0": "103041453616050110", "1": "112026 1636", "2": "01103041420646", "3": "01103041423313 334445361605",
    "4": "36300444", "5": "400003334445361605", "6": "4130100105163645443303", "7": "004016",
    "8": "103041423313020110 133344453616050413", "9": "0516364541301001021343",
    "A": "062046 1434", "B": "00063645443303 0030414233", "C": "4130100105163645", "D": "00062644422000",
    "E": "40000646 0333", "F": "400006 0333", "G": "41301001051636454323", "H": "0006 4046 0343",
    "I": "1016 0020 0626", "J": "3035261605", "K": "0006 400346", "L": "000646", "M": "0600234046", "N": "06004640",
    "O": "103041453616050110", "P": "06003041423303", "Q": "103041453616050110 3446", "R": "06003041423303 2346",
    "S": "413010010213334445361605", "T": "0040 2026", "U": "000516364540", "V": "002640", "W": "0016233640",
    "X": "0046 4006", "Y": "002340 2326", "Z": "00400646",
    "a": "12324346 441405163645", "b": "0006 0312324345361605", "c": "4332120305163645",
    "d": "4046 4332120305163645", "e": "04444332120305163645", "f": "30201116 0232",
    "g": "4247381807 4332120305163645", "h": "0006 0312324346", "i": "0206 0000", "j": "121708 1010",
    "k": "0006 320436", "l": "000516", "m": "0206 03122326 23324346", "n": "0206 0312324346",
    "o": "123243453616050312", "p": "0208 0312324345361605", "q": "4248 4332120305163645", "r": "0206 031232",
    "s": "43321203143445361605", "t": "10152636 0232", "u": "0205163645 4246", "v": "022642", "w": "0216243642",
    "x": "0246 4206", "y": "0226 4208", "z": "02420646",
    ".": "0606", ",": "0607", ":": "0303 0606", ";": "0303 0607", "-": "0434", "–": "0444", "+": "0444 2226",
    "/": "0640", "(": "10010516", ")": "00111506", "[": "10000616", "]": "00101606", "%": "0640 0010110100 3545463635",
    "=": "0343 0545", "_": "0747", "'": "0001", '"': "0001 2021", "<": "420446", ">": "024406", "!": "0004 0606",
    "?": "011030414224 2626", "|": "0007", "·": "0404", "×": "0347 4307", "*": "2125 0244 4204",
    "#": "1016 3036 0242 0444", " ": "",
}  # fmt: skip
_UNKNOWN = "0040460600"
_GAP, _BLANK = 1.8, 3.0
ACROSS, DOWN = 0.1, 0.12
"""Steps of the grid over the size of a letter."""

Stroke = tuple[tuple[float, float], ...]


def strokes_of(text: str, size: float) -> tuple[list[Stroke], float]:
    """Return the strokes of a line of text that starts at (0, 0) on its base line, and how wide it is [px]."""
    found: list[Stroke] = []
    at = 0.0
    for sign in text:
        strokes = _STROKES.get(sign, _UNKNOWN).split()
        points = [[(int(one), int(other)) for one, other in zip(row[::2], row[1::2], strict=True)] for row in strokes]
        found += [tuple(((at + x) * ACROSS * size, (y - 6) * DOWN * size) for x, y in row) for row in points]
        at += max((x for row in points for x, _ in row), default=_BLANK - _GAP) + _GAP
    return found, max(at - _GAP, 0.0) * ACROSS * size
