"""Common parts of the dashboards: queries, panels, variables, annotations and links in one style."""

from grafana_foundation_sdk.builders import bargauge, common, dashboard, heatmap, prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.models import common as kinds
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import heatmap as heat
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

DOCS = "https://github.com/hactl/hactl/blob/main/docs"
SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
# Each dashboard shows one cluster. If targets have no label `cluster`, the variable is empty, which matches them.
CLUSTER = 'cluster="$cluster"'
GREEN, YELLOW, ORANGE, RED, BLUE, GREY = "green", "yellow", "orange", "red", "blue", "#6e7681"

# Targets of the links from names in tables.
PAGE_OF = {label: f"/d/hactl-{label}?var-datasource=${{datasource}}&var-cluster=${{cluster}}&var-{label}=${{__value.text}}&${{__url_time_range}}"
           for label in ("resource", "node")}

# A node has one series for each state; its value is 1 for the current state. The sum of the series, each multiplied by the number
# of its state, is a single series.
NODE_STATES = {"Online": GREEN, "Maintenance": BLUE, "Offline": GREY, "Unknown": ORANGE, "Fence": RED, "Gone": "#484f58"}
FENCE_STATES = {"Open": GREEN, "Fencing": ORANGE, "Fenced": RED, "Closed": GREY}
AGENT_STATES = {"Active": GREEN, "WaitForLock": ORANGE, "LostLock": RED}
ARMING = {"Armed": GREEN, "Arming": YELLOW, "Disarming": YELLOW, "Disarmed": RED}
RESERVATION = {"Holds": GREEN, "Failed": RED, "Undecided": YELLOW}


def of(metric, **labels):
    """Returns a selector of the cluster's series. A value that starts with ~ is a regular expression."""
    matchers = [CLUSTER]
    for label, value in labels.items():
        matchers.append(f'{label}=~"{value[1:]}"' if value.startswith("~") else f'{label}="{value}"')
    return f"{metric}{{{','.join(matchers)}}}"


def happened(series, by):
    """Returns a query for the increase of a counter before each point. Includes the first sample of a new series, unlike increase()."""
    window = "$__rate_interval"
    return f"sum by ({by}) (increase({series}[{window}]) > 0 or ({series} unless {series} offset {window}) or 0 * {series})"


def coded(metric, states, by, **labels):
    """Returns a query for one number by `by`: the position of the current state in `states`, from 1."""
    parts = [f"{place} * max by ({by}) ({of(metric, state=state, **labels)})" for place, state in enumerate(states, 1)]
    return " + ".join(parts)


def mapping(texts):
    """Returns a value mapping from {number: (text, color)}."""
    results = {
        str(number): models.ValueMappingResult(text=text, color=color, index=index)
        for index, (number, (text, color)) in enumerate(texts.items())
    }
    return [models.ValueMap(options=results)]


def states(colors):
    return mapping({place: (state, color) for place, (state, color) in enumerate(colors.items(), 1)})


YES_NO = {1: ("yes", GREEN), 0: ("no", RED)}


def steps(*pairs):
    """Returns thresholds from a color and pairs (from, color)."""
    first, *rest = pairs
    made = [models.Threshold(value=None, color=first)] + [models.Threshold(value=value, color=color) for value, color in rest]
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(made)


# Any number above zero is bad.
NONE_IS_GOOD = (GREEN, (1, RED))
NEUTRAL = (BLUE,)


def query(expr, legend="", instant=False, form=PromQueryFormat.TIME_SERIES):
    made = prometheus.Dataquery().expr(expr).format(form).legend_format(legend).datasource(SOURCE)
    return made.instant() if instant else made.range()


def lettered(panel, queries):
    for letter, made in zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", queries):
        panel.with_target(made.ref_id(letter))
    return panel


def framed(panel, title, description, width, height, unit, decimals):
    """Sets the properties that all panels share."""
    panel.title(title).description(description).datasource(SOURCE).span(width).height(height)
    if unit:
        panel.unit(unit)
    if decimals is not None:
        panel.decimals(decimals)
    return panel


def targets(expr, legend, instant):
    """Returns the queries of a panel. `expr` is one query, or {legend: query}."""
    if isinstance(expr, str):
        expr = {legend: expr}
    return [query(text, name, instant) for name, text in expr.items()]


def runbook(panel, *alerts):
    """Adds links to the runbooks of alerts."""
    return panel.links([
        dashboard.DashboardLink(f"Runbook: {alert}").type(models.DashboardLinkType.LINK)
        .url(f"{DOCS}/runbooks.md#{alert.lower()}").target_blank(True) for alert in alerts
    ])


def last():
    return common.ReduceDataOptions().calcs(["lastNotNull"]).fields("").values(False)


def stat_panel(title, description, expr, legend="", *, width=3, height=4, unit=None, decimals=None, colors=NONE_IS_GOOD,
               texts=None, name=False, background=False, alerts=(), none=None):
    """Returns a panel with the current number, or with `name` the name of the series."""
    panel = framed(stat.Panel(), title, description, width, height, unit, decimals)
    panel.reduce_options(last()).graph_mode(kinds.BigValueGraphMode.NONE).thresholds(steps(*colors))
    panel.color_mode(kinds.BigValueColorMode.BACKGROUND if background else kinds.BigValueColorMode.VALUE)
    if name:
        panel.text_mode(kinds.BigValueTextMode.NAME)
    elif isinstance(expr, dict) or legend:
        panel.text_mode(kinds.BigValueTextMode.VALUE_AND_NAME)
    else:
        panel.text_mode(kinds.BigValueTextMode.VALUE)
    if texts:
        panel.mappings(mapping(texts) if isinstance(texts, dict) else texts)
    if none:
        panel.no_value(none)
    return runbook(lettered(panel, targets(expr, legend, True)), *alerts)


def graph(title, description, expr, legend="", *, width=12, height=8, unit=None, decimals=None, stacked=False, bars=False,
          minimum=0, alerts=(), fill=10, limit=None):
    """Returns a graph of numbers over time."""
    panel = framed(timeseries.Panel(), title, description, width, height, unit, decimals)
    panel.legend(common.VizLegendOptions().show_legend(True).display_mode(kinds.LegendDisplayMode.LIST)
                 .placement(kinds.LegendPlacement.BOTTOM).calcs([]))
    panel.tooltip(common.VizTooltipOptions().mode(kinds.TooltipDisplayMode.MULTI).sort(kinds.SortOrder.DESCENDING))
    panel.draw_style(kinds.GraphDrawStyle.BARS if bars else kinds.GraphDrawStyle.LINE)
    panel.line_width(1).fill_opacity(60 if bars else fill).show_points(kinds.VisibilityMode.NEVER).span_nulls(False)
    if stacked:
        panel.stacking(common.StackingConfig().mode(kinds.StackingMode.NORMAL).group("A"))
        panel.fill_opacity(60)
    if minimum is not None:
        panel.min(minimum)
    if limit is not None:
        panel.thresholds(steps(*limit)).thresholds_style(
            common.GraphThresholdsStyleConfig().mode(kinds.GraphThresholdsStyleMode.LINE))
    return runbook(lettered(panel, targets(expr, legend, False)), *alerts)


def timeline(title, description, expr, legend="", *, texts, width=24, height=6, alerts=()):
    """Returns a timeline with a bar for each series, colored by its state."""
    panel = framed(statetimeline.Panel(), title, description, width, height, None, None)
    panel.mappings(mapping(texts) if isinstance(texts, dict) else texts).color_scheme(
        dashboard.FieldColor().mode(models.FieldColorModeId.THRESHOLDS)).thresholds(steps(GREY))
    panel.merge_values(True).row_height(0.8).show_value(kinds.VisibilityMode.AUTO).fill_opacity(80).line_width(0)
    panel.legend(common.VizLegendOptions().show_legend(False).display_mode(kinds.LegendDisplayMode.LIST)
                 .placement(kinds.LegendPlacement.BOTTOM).calcs([]))
    return runbook(lettered(panel, targets(expr, legend, False)), *alerts)


def bars_panel(title, description, expr, legend="", *, width=8, height=8, unit=None, decimals=None, colors=(GREEN,), maximum=None,
               alerts=()):
    """Returns a panel with a bar for the current number of each series."""
    panel = framed(bargauge.Panel(), title, description, width, height, unit, decimals)
    panel.reduce_options(last()).orientation(kinds.VizOrientation.HORIZONTAL).display_mode(kinds.BarGaugeDisplayMode.BASIC)
    panel.value_mode(kinds.BarGaugeValueMode.COLOR).show_unfilled(True).thresholds(steps(*colors)).min(0)
    if maximum is not None:
        panel.max(maximum)
    return runbook(lettered(panel, targets(expr, legend, True)), *alerts)


def heat_panel(title, description, expr, *, width=12, height=8, unit="s"):
    """Returns a heat map of observations by size over time. The query must return buckets by `le`."""
    panel = framed(heatmap.Panel(), title, description, width, height, None, None)
    panel.calculate(False).y_axis(heatmap.YAxisConfig().axis_placement(kinds.AxisPlacement.LEFT).unit(unit))
    panel.color(heatmap.HeatmapColorOptions().mode(heat.HeatmapColorMode.SCHEME).scheme("Oranges").fill("dark-orange")
                .scale(heat.HeatmapColorScale.EXPONENTIAL).exponent(0.5).steps(64).reverse(False))
    panel.cell_gap(1).show_legend()
    return lettered(panel, [query(expr, "{{le}}", form=PromQueryFormat.HEATMAP)])


def rows(title, description, columns, *, names, order=(), hidden=False, units=None, texts=None, width=12, height=8, alerts=(), colors=None):
    """Returns a table. `columns` maps column names to queries. Rows are joined by their labels, whose titles are in `names`.
    With `hidden`, the table omits numbers that only show the existence of a row."""
    panel = framed(table.Panel(), title, description, width, height, None, None)
    panel.show_header(True).cell_height(kinds.TableCellHeight.SM)
    letters = dict(zip(columns, "ABCDEFGHIJ"))
    value = {column: f"Value #{letter}" if len(columns) > 1 else "Value" for column, letter in letters.items()}
    if len(columns) > 1:
        panel.with_transformation(models.DataTransformerConfig(id_val="merge", options={}))
    renamed = {**names, **({} if hidden else {value[column]: column for column in columns})}
    wanted = [*names, *(value[column] for column in columns if not hidden)]
    panel.with_transformation(models.DataTransformerConfig(id_val="organize", options={
        "excludeByName": {"Time": True, **({name: True for name in value.values()} if hidden else {})},
        "indexByName": {name: index for index, name in enumerate(wanted)},
        "renameByName": renamed,
    }))
    for label in names:
        if label in PAGE_OF:
            link = {"title": f"Dashboard of this {label}", "url": PAGE_OF[label]}
            panel.override_by_name(names[label], [models.DynamicConfigValue(id_val="links", value=[link])])
    for column in columns:
        properties = []
        if units and column in units:
            unit, decimals = units[column]
            properties += [models.DynamicConfigValue(id_val="unit", value=unit),
                           models.DynamicConfigValue(id_val="decimals", value=decimals)]
        if texts and column in texts:
            properties.append(models.DynamicConfigValue(id_val="mappings", value=mapping(texts[column])))
        if colors and column in colors:
            properties += [models.DynamicConfigValue(id_val="thresholds", value=steps(*colors[column]).build()),
                           models.DynamicConfigValue(id_val="custom.cellOptions", value={"type": "color-text"})]
        if properties:
            panel.override_by_name(column, properties)
    if order:
        column, descending = order
        panel.sort_by([common.TableSortByFieldState().display_name(column).desc(descending)])
    made = [query(expr, "", instant=True, form=PromQueryFormat.TABLE) for expr in columns.values()]
    return runbook(lettered(panel, made), *alerts)


class Annotation(models.AnnotationQuery):
    """An annotation with the additional fields of Prometheus' data source: formats of title and text."""

    def __init__(self, name, color, expr, title, text):
        super().__init__(name=name, datasource=SOURCE, enable=True, hide=None, icon_color=color, built_in=None)
        self.query = {"expr": expr, "refId": "Anno", "interval": "10s", "range": True, "instant": False}
        self.texts = {"titleFormat": title, "textFormat": text}

    def to_json(self):
        return {**super().to_json(), **self.texts, "target": self.query}

    def build(self):
        return self


def variable(name, label, values, description):
    return (dashboard.QueryVariable(name).label(label).description(description).query(values).datasource(SOURCE)
            .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(models.VariableSort.NATURAL_ASC).multi(False).include_all(False))


def page(uid, title, description, since="now-6h"):
    """Returns a dashboard with the common parts: data source, cluster, annotations and links to the other dashboards."""
    made = dashboard.Dashboard(title).uid(uid).description(description).tags(["hactl"]).editable().timezone("browser")
    made.refresh("30s").time(since, "now").tooltip(models.DashboardCursorSync.CROSSHAIR)
    made.with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    made.with_variable(variable("cluster", "Cluster", "label_values(hactl_leader, cluster)",
                                "Label `cluster` of the targets; empty if targets have none."))
    made.annotation(Annotation(
        "Fencing", RED, f'max by (node) ({of("hactl_node_fence_state", state="~Fencing|Fenced")}) == 1',
        "Node {{node}} is fenced", "The registration of the node was revoked. Its services are recovered on other nodes."))
    made.annotation(Annotation(
        "Fencing confirmed", ORANGE, f'sum by (method) (increase({of("hactl_fences_total", result="Confirmed")}[$__rate_interval])) > 0',
        "Fencing confirmed", "Method: {{method}}"))
    made.annotation(Annotation(
        "Leader", BLUE, f'sum by (instance) (increase({of("hactl_leader_transitions_total", transition="became")}[$__rate_interval])) > 0',
        "New leader", "{{instance}}"))
    made.link(dashboard.DashboardLink("hactl").type(models.DashboardLinkType.DASHBOARDS).tags(["hactl"]).as_dropdown(True)
              .include_vars(True).keep_time(True).icon("external link"))
    made.link(dashboard.DashboardLink("Runbooks").type(models.DashboardLinkType.LINK).url(f"{DOCS}/runbooks.md").icon("doc")
              .tooltip("Section for each alert").target_blank(True))
    made.link(dashboard.DashboardLink("Metrics").type(models.DashboardLinkType.LINK).url(f"{DOCS}/metrics.md").icon("doc")
              .tooltip("Meaning of each metric").target_blank(True))
    return made


def row(made, title, *panels):
    """Adds a row and its panels."""
    made.with_row(dashboard.Row(title))
    for panel in panels:
        made.with_panel(panel)
