

# From here on this file is berth's. A character that the wanted font lacks comes from the first of these fonts that has
# it, whatever font the code or a style asks for; matplotlib by itself draws a box, unless the code names a list of
# fonts. The Noto fonts are in the image full. Unifont has all characters, if plain ones.
_FALLBACK = (
    "Noto Sans CJK JP", "Noto Sans Devanagari", "Noto Sans Thai", "Noto Sans Bengali", "Noto Sans Tamil",
    "Noto Sans Telugu", "WenQuanYi Micro Hei", "FreeSans", "FreeSerif", "Symbola", "Unifont", "Unifont Upper",
)
_fallback_found = (0, [])


def _fallback(manager):
    global _fallback_found
    if _fallback_found[0] != len(manager.ttflist):
        files = {}
        for font in manager.ttflist:
            if font.name in _FALLBACK and font.style == "normal" and font.weight in (400, "normal", "regular"):
                files.setdefault(font.name, font.fname)
        _fallback_found = len(manager.ttflist), [files[name] for name in _FALLBACK if name in files]
    return _fallback_found[1]


def _with_fallback(find):
    def _find_fonts_by_props(self, *args, **kwargs):
        found = find(self, *args, **kwargs)
        return found + [file for file in _fallback(self) if file not in found]

    return _find_fonts_by_props


if hasattr(FontManager, "_find_fonts_by_props"):
    FontManager._find_fonts_by_props = _with_fallback(FontManager._find_fonts_by_props)
