# Figures of matplotlib as data: the kind of chart, its axes and what it shows. It is compiled when the first figure is
# shown. The form is that of E2B's interpreter, so that its clients can draw a chart anew.
import re

BOXES = "_berth_boxes"  # attribute of axes: the statistics of their box plots

driver = None


def begin(d):
    global driver
    driver = d


def watch():
    """watch has axes keep the statistics of box plots, since what is drawn of them does not tell."""
    from matplotlib.axes import Axes
    draw = Axes.bxp

    def bxp(self, bxpstats, *args, **kwargs):
        getattr(self, BOXES, None) or setattr(self, BOXES, [])
        getattr(self, BOXES).extend((dict(stats), kwargs) for stats in bxpstats)
        return draw(self, bxpstats, *args, **kwargs)

    bxp.__doc__ = draw.__doc__
    bxp.__signature__ = __import__("inspect").signature(draw)
    Axes.bxp = bxp


def chart(figure):
    """chart returns a figure as an object for JSON: one chart, or several as the elements of a superchart."""
    charts = [axes_chart(axes) for axes in figure.axes if axes.get_label() != "<colorbar>"]
    charts = [chart for chart in charts if chart is not None]
    if len(charts) == 1:
        return charts[0]
    title = figure._suptitle.get_text() if getattr(figure, "_suptitle", None) else None
    return {"type": "superchart" if charts else "unknown", "title": title, "elements": charts}


def axes_chart(axes):
    """axes_chart returns one pair of axes as a chart, or None if nothing was drawn there."""
    for kind, elements in (("pie", slices), ("box_and_whisker", boxes), ("bar", bars), ("scatter", dots),
                           ("line", lines)):
        found = elements(axes)
        if not found:
            continue
        out = {"type": kind, "title": axes.get_title() or None, "elements": found}
        if kind != "pie":
            for name, label in (("x", axes.get_xlabel()), ("y", axes.get_ylabel())):
                out[name + "_label"] = label or None
                out[name + "_unit"] = unit(label)
        if kind in ("scatter", "line"):
            for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
                ticks(out, name, axis)
        return out
    if not axes.has_data():
        return None
    return {"type": "unknown", "title": axes.get_title() or None, "elements": []}


def unit(label):
    """unit returns what a label has in brackets."""
    found = re.search(r"\(([^()]+)\)|\[([^\[\]]+)\]", label or "")
    return (found.group(1) or found.group(2)) if found else None


def ticks(out, name, axis):
    values = list(axis.get_majorticklocs())
    out[name + "_ticks"] = [place(axis, value) for value in values]
    out[name + "_tick_labels"] = [label.get_text() for label in axis.get_majorticklabels()]
    out[name + "_scale"] = scale(axis)


def converter(axis):
    """converter returns the name of what turns an axis's own values into numbers."""
    found = axis.get_converter() if hasattr(axis, "get_converter") else axis.converter
    return type(found).__name__


def scale(axis):
    name = converter(axis)
    if "Date" in name or "Period" in name or "Timestamp" in name:
        return "datetime"
    return "categorical" if "Categor" in name else axis.get_scale()


def place(axis, value):
    """place returns a value on an axis for JSON: a number, a date or a category."""
    if scale(axis) == "datetime" and isinstance(number(value), float):
        from matplotlib.dates import num2date
        return num2date(number(value)).replace(tzinfo=None).isoformat()
    return number(value)


def number(value):
    """number returns a value as a finite float, or as a text."""
    try:
        value = float(value)
    except (TypeError, ValueError):
        return value.isoformat() if hasattr(value, "isoformat") else str(value)
    return value if value - value == 0 else None


def named(artist, otherwise):
    """named returns the label of an artist; those that begin with '_' are matplotlib's own."""
    label = str(artist.get_label() or "")
    return otherwise if not label or label.startswith("_") else label


def points(axes, xs, ys):
    return [[place(axes.xaxis, x), place(axes.yaxis, y)] for x, y in zip(xs, ys)]


def lines(axes):
    shown = [line for line in axes.lines if len(line.get_xdata(orig=False)) > 0]
    return [{"label": named(line, "Line %d" % n), "points": points(axes, line.get_xdata(orig=False),
                                                                  line.get_ydata(orig=False))}
            for n, line in enumerate(shown, 1)]


def dots(axes):
    from matplotlib.collections import PathCollection
    shown = [c for c in axes.collections if isinstance(c, PathCollection) and len(c.get_offsets()) > 0]
    return [{"label": named(c, "Group %d" % n), "points": points(axes, *zip(*c.get_offsets().data.tolist()))}
            for n, c in enumerate(shown, 1)]


def tick_texts(axis):
    """tick_texts returns the labels of an axis by where they stand."""
    return {round(float(at), 6): label.get_text() for at, label in zip(axis.get_majorticklocs(),
                                                                       axis.get_majorticklabels())}


def bars(axes):
    from matplotlib.container import BarContainer
    out = []
    shown = [c for c in axes.containers if isinstance(c, BarContainer)]
    for n, group in enumerate(shown, 1):
        flat = getattr(group, "orientation", None) == "horizontal"
        axis = axes.yaxis if flat else axes.xaxis
        texts = tick_texts(axis)
        for bar in group.patches:
            at = bar.get_y() + bar.get_height() / 2 if flat else bar.get_x() + bar.get_width() / 2
            near = min(texts, key=lambda tick: abs(tick - at), default=None)
            beside = near is not None and abs(near - at) < 0.5 and not isinstance(number(texts[near] or 0), float)
            label = texts[near] if beside else texts.get(round(at, 6)) or str(place(axis, at))
            out.append({"label": label, "group": named(group, "Group %d" % n),
                        "value": number(bar.get_width() if flat else bar.get_height())})
    return out


def slices(axes):
    from matplotlib.patches import Wedge
    if not axes.patches or not all(isinstance(patch, Wedge) for patch in axes.patches):
        return []
    return [{"label": named(wedge, "Slice %d" % n), "angle": number(round(abs(wedge.theta2 - wedge.theta1), 4)),
             "radius": number(wedge.r)} for n, wedge in enumerate(axes.patches, 1)]


def boxes(axes):
    out = []
    for n, (stats, options) in enumerate(getattr(axes, BOXES, ()), 1):
        label = stats.get("label")
        if not label:
            flat = options.get("vert") is False or options.get("orientation") == "horizontal"
            positions = options.get("positions")
            at = positions[n - 1] if positions is not None and n <= len(positions) else n
            texts = tick_texts(axes.yaxis if flat else axes.xaxis)
            label = texts.get(round(float(at), 6)) or "Box %d" % n
        out.append({"label": str(label), "min": number(stats["whislo"]), "first_quartile": number(stats["q1"]),
                    "median": number(stats["med"]), "third_quartile": number(stats["q3"]),
                    "max": number(stats["whishi"]), "outliers": [number(v) for v in stats.get("fliers", ())]})
    return out
