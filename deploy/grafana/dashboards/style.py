"""Defines what all dashboards share: panels, colours, variables, links and annotations.

Colours are Grafana's names, which it has in one shade for dark and one for light pages. Red and green never stand
alone: what is bad also says so in words, by its order or by its length. A description says what to do about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from grafana_foundation_sdk.builders import bargauge, common, stat, statushistory, table, timeseries
from grafana_foundation_sdk.builders import dashboard as board
from grafana_foundation_sdk.builders import prometheus as prometheus_builder
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import prometheus as prometheus_models

TAG = "opsk"
SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
NODES = 'cluster=~"$cluster",node=~"$node"'
"""Selects the series of the nodes that were chosen above."""
OF_GPU = "on (cluster, node, gpu)"
"""What identifies a GPU in a join: a UUID alone would do, if no virtual machine were ever copied."""
RATE = "$__rate_interval"

Row: TypeAlias = board.Row
Panel: TypeAlias = stat.Panel | timeseries.Panel | table.Panel | statushistory.Panel | bargauge.Panel
Steps: TypeAlias = Sequence[tuple[float | None, str]]

AMOUNT, WARM = models.FieldColorModeId.CONTINUOUS_BLUES, models.FieldColorModeId.CONTINUOUS_BL_YL_RD
"""Scales of colours: for what is only much or little, and for what is bad when it is much."""
GOOD, WATCH, BAD, PLAIN = "green", "yellow", "red", "blue"
BAD_ABOVE_0: Steps = ((None, GOOD), (1, BAD))
WATCH_ABOVE_0: Steps = ((None, GOOD), (1, WATCH))
NEUTRAL: Steps = ((None, PLAIN),)


@dataclass(frozen=True, kw_only=True)
class Query:
    """One query of a panel, and how its series are called in the legend."""

    expr: str
    legend: str = ""
    instant: bool = False


@dataclass(frozen=True, kw_only=True)
class Look:
    """How a panel is to look.

    Parameters
    ----------
    unit
        Grafana's word for the unit: ``watt``, ``percentunit``, ``bytes``, ``short``, ``none``.
    width, height
        Of 24 columns, and in rows of the grid.
    low, high
        Ends of the axis, and of a colour scale.
    steps
        Thresholds, lowest first; the first has no value.
    colours
        Scale of colours where it is not the thresholds that say them.
    """

    unit: str
    width: int
    height: int = 8
    low: float | None = 0
    high: float | None = None
    steps: Steps = NEUTRAL
    colours: models.FieldColorModeId | None = None
    decimals: int | None = None
    stacked: bool = False
    words: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Words and colours for values: ``{"0": ("down", "red")}``."""
    when_empty: str = "none"


def small(unit: str = "short", *, decimals: int = 0, steps: Steps = NEUTRAL, when_empty: str = "none") -> Look:
    """Return how one of the numbers at the top of a page looks."""
    return Look(unit=unit, width=4, height=4, decimals=decimals, steps=steps, when_empty=when_empty)


def add_gpu_index(expr: str, where: str = NODES) -> str:
    """Give a value of each GPU the GPU's index; a GPU that is lost has that of the last day, or none, and is shown."""
    info = f"max by (cluster, node, gpu, index) (last_over_time(opsk_gpu_info{{{where}}}[1d]))"
    return f"({expr}) * {OF_GPU} group_left (index) {info} or ({expr}) unless {OF_GPU} {info}"


def _target(query: Query, ref: str, *, as_table: bool = False) -> prometheus_builder.Dataquery:
    """Return one query as Grafana has it."""
    target = prometheus_builder.Dataquery().expr(query.expr).legend_format(query.legend or "__auto").ref_id(ref)
    target.datasource(SOURCE).editor_mode(prometheus_models.QueryEditorMode.CODE)
    if as_table:
        target.format(prometheus_models.PromQueryFormat.TABLE)
    return target.instant() if query.instant else target.range()


def _dress(panel: Any, title: str, text: str, look: Look, queries: Iterable[Query], *, as_table: bool = False) -> None:
    """Give a panel what all panels have."""
    panel.title(title).description(text).datasource(SOURCE).height(look.height).span(look.width)
    panel.unit(look.unit).no_value(look.when_empty)
    panel.thresholds(
        board.ThresholdsConfig()
        .mode(models.ThresholdsMode.ABSOLUTE)
        .steps([models.Threshold(value=value, color=colour) for value, colour in look.steps])
    )
    if look.low is not None:
        panel.min(look.low)
    if look.high is not None:
        panel.max(look.high)
    if look.decimals is not None:
        panel.decimals(look.decimals)
    if look.words:
        options = {
            value: models.ValueMappingResult(text=word, color=colour, index=index)
            for index, (value, (word, colour)) in enumerate(look.words.items())
        }
        panel.mappings([models.ValueMap(options=options)])
    for index, query in enumerate(queries):
        panel.with_target(_target(query, chr(ord("A") + index), as_table=as_table))


def _scale(look: Look) -> board.FieldColor:
    """Return the colours of a panel whose colour says how much."""
    return board.FieldColor().mode(look.colours or models.FieldColorModeId.THRESHOLDS)


def lines(title: str, text: str, look: Look, *queries: Query) -> timeseries.Panel:
    """Return curves over time, with a table of last and highest values below."""
    panel = timeseries.Panel()
    _dress(panel, title, text, look, queries)
    panel.color_scheme(board.FieldColor().mode(look.colours or models.FieldColorModeId.PALETTE_CLASSIC))
    panel.line_width(1).fill_opacity(60 if look.stacked else 8).show_points(common_models.VisibilityMode.NEVER)
    panel.span_nulls(False)
    if look.stacked:
        panel.stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL).group("A"))
    if len(look.steps) > 1:
        style = common.GraphThresholdsStyleConfig().mode(common_models.GraphThresholdsStyleMode.DASHED)
        panel.thresholds_style(style)
    calcs = ["lastNotNull", "max"]
    panel.legend(
        common.VizLegendOptions()
        .show_legend(True)
        .display_mode(common_models.LegendDisplayMode.TABLE)
        .placement(common_models.LegendPlacement.BOTTOM)
        .calcs(calcs)
        .sort_by("Max")
        .sort_desc(True)
    )
    panel.tooltip(
        common.VizTooltipOptions().mode(common_models.TooltipDisplayMode.MULTI).sort(common_models.SortOrder.DESCENDING)
    )
    return panel


def number(title: str, text: str, look: Look, *queries: Query, curve: bool = True) -> stat.Panel:
    """Return one number, or a few with names, on a coloured ground, with its curve behind."""
    panel = stat.Panel()
    _dress(panel, title, text, look, queries)
    panel.color_scheme(_scale(look))
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).fields("").values(False))
    panel.color_mode(common_models.BigValueColorMode.VALUE)
    panel.graph_mode(common_models.BigValueGraphMode.AREA if curve else common_models.BigValueGraphMode.NONE)
    several = len(queries) > 1
    panel.text_mode(common_models.BigValueTextMode.VALUE_AND_NAME if several else common_models.BigValueTextMode.VALUE)
    return panel


def heat(title: str, text: str, look: Look, *queries: Query) -> statushistory.Panel:
    """Return a heat map over time: one row a series, a cell's colour its value."""
    panel = statushistory.Panel()
    _dress(panel, title, text, look, queries)
    panel.color_scheme(_scale(look)).show_value(common_models.VisibilityMode.NEVER)
    panel.row_height(0.9).col_width(0.95).fill_opacity(90).line_width(0).max_data_points(90)
    panel.legend(common.VizLegendOptions().show_legend(True).display_mode(common_models.LegendDisplayMode.LIST))
    panel.tooltip(common.VizTooltipOptions().mode(common_models.TooltipDisplayMode.SINGLE))
    return panel


def bars(title: str, text: str, look: Look, *queries: Query) -> bargauge.Panel:
    """Return one bar a series, longest first as the query sorts them."""
    panel = bargauge.Panel()
    _dress(panel, title, text, look, queries)
    panel.color_scheme(_scale(look)).orientation(common_models.VizOrientation.HORIZONTAL)
    panel.display_mode(common_models.BarGaugeDisplayMode.GRADIENT)
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).fields("").values(False))
    return panel


def matrix(title: str, text: str, look: Look, query: Query, *, rows: str, columns: str) -> table.Panel:
    """Return a heat map of two labels: one row a value of the one, one column a value of the other."""
    panel = table.Panel()
    _dress(panel, title, text, look, (query,), as_table=True)
    pivot = {"columnField": columns, "rowField": rows, "valueField": "Value", "emptyValue": "null"}
    panel.with_transformation(models.DataTransformerConfig(id_val="groupingToMatrix", options=pivot))
    panel.color_scheme(_scale(look)).cell_options(_colour_background()).cell_height(common_models.TableCellHeight.SM)
    corner = rf"{rows}\{columns}"
    plain = models.DynamicConfigValue(id_val="custom.cellOptions", value={"type": "auto"})
    panel.override_by_name(corner, [plain])
    panel.align(common_models.FieldTextAlignment.CENTER).filterable(False)
    return panel


def listing(
    title: str,
    text: str,
    look: Look,
    queries: Sequence[Query],
    *,
    columns: dict[str, str],
    units: dict[str, str] | None = None,
    links: dict[str, tuple[str, str]] | None = None,
    words: dict[str, dict[str, tuple[str, str]]] | None = None,
    sort: str | None = None,
) -> table.Panel:
    """Return a table: one row a series.

    Parameters
    ----------
    columns
        Labels and values to show (``Value`` or ``Value #A``), in this order, and what to call them.
    units
        Units of columns that have another than the panel's, by what they are called.
    links
        Where a column leads, by what it is called: title and address.
    words
        Words and colours for values of a column, by what it is called.
    sort
        Column by which rows are sorted, largest first.
    """
    panel = table.Panel()
    _dress(panel, title, text, look, queries, as_table=True)
    if len(queries) > 1:
        panel.with_transformation(models.DataTransformerConfig(id_val="merge", options={}))
    order = {name: index for index, name in enumerate(columns)}
    keep = {"include": {"names": list(columns)}}
    panel.with_transformation(models.DataTransformerConfig(id_val="filterFieldsByName", options=keep))
    organize = {"indexByName": order, "renameByName": columns, "excludeByName": {}}
    panel.with_transformation(models.DataTransformerConfig(id_val="organize", options=organize))
    panel.color_scheme(_scale(look)).cell_height(common_models.TableCellHeight.SM).filterable(True)
    for name, unit in (units or {}).items():
        panel.override_by_name(name, [models.DynamicConfigValue(id_val="unit", value=unit)])
    for name, (where, address) in (links or {}).items():
        link = {"title": where, "url": address, "targetBlank": False}
        panel.override_by_name(name, [models.DynamicConfigValue(id_val="links", value=[link])])
    for name, said in (words or {}).items():
        options = {value: {"text": word, "color": colour} for value, (word, colour) in said.items()}
        mapping = models.DynamicConfigValue(id_val="mappings", value=[{"type": "value", "options": options}])
        coloured = models.DynamicConfigValue(id_val="custom.cellOptions", value={"type": "color-text"})
        panel.override_by_name(name, [mapping, coloured])
    if sort is not None:
        panel.sort_by([common.TableSortByFieldState().display_name(sort).desc(True)])
    return panel


def _colour_background() -> common_models.TableColoredBackgroundCellOptions:
    """Return cells whose ground has the colour of the value."""
    return common_models.TableColoredBackgroundCellOptions(mode=common_models.TableCellBackgroundDisplayMode.BASIC)


def row(title: str) -> Row:
    """Return the title of a group of panels."""
    return Row(title)


def to_job(label: str = "${__data.fields.job}") -> str:
    """Return the address of a job's dashboard."""
    return f"/d/opsk-job?var-job={label}&${{cluster:queryparam}}&${{datasource:queryparam}}&${{__url_time_range}}"


def to_node(uid: str, label: str = "${__data.fields.node}") -> str:
    """Return the address of another dashboard, for one node."""
    return f"/d/{uid}?var-node={label}&${{cluster:queryparam}}&${{datasource:queryparam}}&${{__url_time_range}}"


class PrometheusAnnotation(models.AnnotationQuery):
    """An annotation from Prometheus at the time that its value says: the SDK's class knows the query alone."""

    def __init__(self, name: str, expr: str, colour: str, title: str, text: str) -> None:
        super().__init__(name=name, expr=expr, icon_color=colour, enable=True, datasource=SOURCE, hide=False)
        self.extra = {"titleFormat": title, "textFormat": text, "useValueForTime": "on", "step": "1m"}

    def to_json(self) -> dict[str, object]:
        """Return it as Grafana has it."""
        return {**super().to_json(), **self.extra}


class _Annotation(board.AnnotationQuery):
    """Builder around an annotation that is ready."""

    def __init__(self, ready: models.AnnotationQuery) -> None:
        super().__init__()
        self._internal = ready


def xid_marks(where: str = NODES) -> PrometheusAnnotation:
    """Return a mark at each XID that asks for something; application's own faults have none."""
    seen = f'opsk_gpu_xid_last_seen_timestamp_seconds{{{where},class!~"info|cascade|app|unused"}}'
    return PrometheusAnnotation(
        "XIDs",
        f"max by (cluster, node, gpu, xid, class) ({seen}) * 1000",
        BAD,
        "XID {{xid}} on {{node}}",
        "{{class}}, GPU {{gpu}}",
    )


def job_words(where: str, *labels: str) -> str:
    """Return an expression with one series a job, of value 1, for a join.

    Nodes of a job may tell different words of it, and a join with two rows of one job fails for all jobs: rows with a
    name come first, then what most nodes say.
    """
    kept = ", ".join(("cluster", "job", *labels))
    named, rows = (f"count by ({kept}) (opsk_job_info{{{where}{more}}})" for more in (',name!=""', ""))
    return f"group by ({kept}) (topk by (cluster, job) (1, {named} * 1e6 or {rows}))"


def job_marks(where: str = NODES) -> PrometheusAnnotation:
    """Return a mark at each start of a job."""
    names = job_words(where, "user", "name")
    starts = f"min by (cluster, job) (opsk_job_start_time_seconds{{{where}}})"
    return PrometheusAnnotation(
        "Job starts",
        f"{starts} * on (cluster, job) group_left (user, name) {names} * 1000",
        PLAIN,
        "Job {{job}} starts",
        "{{user}}: {{name}}",
    )


def _pick(name: str, label: str, query: str, text: str, *, several: bool) -> board.QueryVariable:
    """Return a variable whose values are those of a label."""
    variable = board.QueryVariable(name).label(label).description(text).datasource(SOURCE)
    variable.query({"query": query, "refId": f"{name}-values"}).refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
    if several:
        variable.multi(True).include_all(True).all_value(".*").sort(models.VariableSort.NATURAL_ASC)
        return variable.current(models.VariableOption(selected=True, text=["All"], value=["$__all"]))
    return variable.multi(False).sort(models.VariableSort.NUMERICAL_DESC)


def new(uid: str, title: str, text: str, *, nodes: bool = True, job: bool = False) -> board.Dashboard:
    """Return an empty dashboard with variables, links and marks.

    Parameters
    ----------
    uid
        Part of its address; other dashboards link there.
    nodes, job
        Whether nodes, and one job, can be chosen above.
    """
    page = board.Dashboard(f"opsk / {title}").uid(uid).description(text).tags([TAG]).refresh("1m").time("now-3h", "now")
    page.timezone("browser").tooltip(models.DashboardCursorSync.CROSSHAIR).editable()
    source = board.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
    page.with_variable(source.description("Where the series are."))
    known = '{__name__=~"opsk_gpu_up|opsk_gpu_power_watts|opsk_host_cpus|opsk_infiniband_port_state"'
    page.with_variable(
        _pick(
            "cluster",
            "Cluster",
            f"label_values({known}}}, cluster)",
            "Label cluster of the targets; All where there is none.",
            several=True,
        )
    )
    if nodes:
        query = f'label_values({known},cluster=~"$cluster"}}, node)'
        page.with_variable(_pick("node", "Node", query, "One node, several, or all.", several=True))
    if job:
        query = 'label_values(opsk_job_gpu{cluster=~"$cluster"}, job)'
        page.with_variable(_pick("job", "Job", query, "Slurm's number of the job; the newest first.", several=False))
    others = board.DashboardLink("opsk").type(models.DashboardLinkType.DASHBOARDS).tags([TAG]).as_dropdown(False)
    page.link(others.icon("external link").include_vars(True).keep_time(True).target_blank(False))
    where = NODES if nodes else 'cluster=~"$cluster"'
    page.annotation(_Annotation(xid_marks(where)))
    page.annotation(_Annotation(job_marks(where)))
    return page


def fill(page: board.Dashboard, parts: Iterable[Panel | Row]) -> models.Dashboard:
    """Put panels on a dashboard, left to right and row by row, and number them."""
    for part in parts:
        if isinstance(part, board.Row):
            page.with_row(part)
        else:
            page.with_panel(part)
    built = page.build()
    for number_of, panel in enumerate(built.panels or (), start=1):
        panel.id_val = number_of
    return built
