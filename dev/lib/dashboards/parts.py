"""What the dashboards are made of: queries, panels, variables, annotations and links in one style."""

from grafana_foundation_sdk.builders import bargauge, common, dashboard, heatmap, prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.models import common as kinds
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import heatmap as heat
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

DOCS = "https://github.com/hactl/hactl/blob/main/docs"
SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
# Every dashboard is about one cluster; where targets have no label `cluster` the variable is empty, which matches them.
CLUSTER = 'cluster="$cluster"'
GREEN, YELLOW, ORANGE, RED, BLUE, GREY = "green", "yellow", "orange", "red", "blue", "#6e7681"

# Where a name in a table leads.
PAGE_OF = {label: f"/d/hactl-{label}?var-datasource=${{datasource}}&var-cluster=${{cluster}}&var-{label}=${{__value.text}}&${{__url_time_range}}"
           for label in ("resource", "node")}

# A node has a series for each of these, 1 for the one that holds: summed up with their numbers they are one series.
NODE_STATES = {"Online": GREEN, "Maintenance": BLUE, "Offline": GREY, "Unknown": ORANGE, "Fence": RED, "Gone": "#484f58"}
FENCE_STATES = {"Open": GREEN, "Fencing": ORANGE, "Fenced": RED, "Closed": GREY}
AGENT_STATES = {"Active": GREEN, "WaitForLock": ORANGE, "LostLock": RED}
ARMING = {"Armed": GREEN, "Arming": YELLOW, "Disarming": YELLOW, "Disarmed": RED}
RESERVATION = {"Holds": GREEN, "Failed": RED, "Undecided": YELLOW}


def of(metric, **labels):
    """A selector of the cluster's series; a label whose value begins with ~ is a regular expression."""
    matchers = [CLUSTER]
    for label, value in labels.items():
        matchers.append(f'{label}=~"{value[1:]}"' if value.startswith("~") else f'{label}="{value}"')
    return f"{metric}{{{','.join(matchers)}}}"


def happened(series, by):
    """How often something happened just before each point, for counters whose series begin with the first time: that is no increase."""
    window = "$__rate_interval"
    return f"sum by ({by}) (increase({series}[{window}]) > 0 or ({series} unless {series} offset {window}) or 0 * {series})"


def coded(metric, states, by, **labels):
    """One number for each of `by`: the place of its state among `states`."""
    parts = [f"{place} * max by ({by}) ({of(metric, state=state, **labels)})" for place, state in enumerate(states, 1)]
    return " + ".join(parts)


def mapping(texts):
    """Texts and colours for numbers: {number: (text, colour)}."""
    results = {
        str(number): models.ValueMappingResult(text=text, color=color, index=index)
        for index, (number, (text, color)) in enumerate(texts.items())
    }
    return [models.ValueMap(options=results)]


def states(colors):
    return mapping({place: (state, color) for place, (state, color) in enumerate(colors.items(), 1)})


YES_NO = {1: ("yes", GREEN), 0: ("no", RED)}


def steps(*pairs):
    """Thresholds: a colour, then (from, colour)…"""
    first, *rest = pairs
    made = [models.Threshold(value=None, color=first)] + [models.Threshold(value=value, color=color) for value, color in rest]
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(made)


# More than none is bad.
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
    """What every panel has."""
    panel.title(title).description(description).datasource(SOURCE).span(width).height(height)
    if unit:
        panel.unit(unit)
    if decimals is not None:
        panel.decimals(decimals)
    return panel


def targets(expr, legend, instant):
    """`expr` is one query, or {legend: query}."""
    if isinstance(expr, str):
        expr = {legend: expr}
    return [query(text, name, instant) for name, text in expr.items()]


def runbook(panel, *alerts):
    """Links to the pages that say what to do."""
    return panel.links([
        dashboard.DashboardLink(f"What to do: {alert}").type(models.DashboardLinkType.LINK)
        .url(f"{DOCS}/runbooks.md#{alert.lower()}").target_blank(True) for alert in alerts
    ])


def last():
    return common.ReduceDataOptions().calcs(["lastNotNull"]).fields("").values(False)


def stat_panel(title, description, expr, legend="", *, width=3, height=4, unit=None, decimals=None, colors=NONE_IS_GOOD,
               texts=None, name=False, background=False, alerts=(), none=None):
    """One number, now; with `name` the text is the series' name."""
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
    """Numbers over time."""
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
    """A bar a series, coloured by what holds when."""
    panel = framed(statetimeline.Panel(), title, description, width, height, None, None)
    panel.mappings(mapping(texts) if isinstance(texts, dict) else texts).color_scheme(
        dashboard.FieldColor().mode(models.FieldColorModeId.THRESHOLDS)).thresholds(steps(GREY))
    panel.merge_values(True).row_height(0.8).show_value(kinds.VisibilityMode.AUTO).fill_opacity(80).line_width(0)
    panel.legend(common.VizLegendOptions().show_legend(False).display_mode(kinds.LegendDisplayMode.LIST)
                 .placement(kinds.LegendPlacement.BOTTOM).calcs([]))
    return runbook(lettered(panel, targets(expr, legend, False)), *alerts)


def bars_panel(title, description, expr, legend="", *, width=8, height=8, unit=None, decimals=None, colors=(GREEN,), maximum=None,
               alerts=()):
    """A bar a series, now."""
    panel = framed(bargauge.Panel(), title, description, width, height, unit, decimals)
    panel.reduce_options(last()).orientation(kinds.VizOrientation.HORIZONTAL).display_mode(kinds.BarGaugeDisplayMode.BASIC)
    panel.value_mode(kinds.BarGaugeValueMode.COLOR).show_unfilled(True).thresholds(steps(*colors)).min(0)
    if maximum is not None:
        panel.max(maximum)
    return runbook(lettered(panel, targets(expr, legend, True)), *alerts)


def heat_panel(title, description, expr, *, width=12, height=8, unit="s"):
    """How many observations of which size, over time; the query gives buckets by `le`."""
    panel = framed(heatmap.Panel(), title, description, width, height, None, None)
    panel.calculate(False).y_axis(heatmap.YAxisConfig().axis_placement(kinds.AxisPlacement.LEFT).unit(unit))
    panel.color(heatmap.HeatmapColorOptions().mode(heat.HeatmapColorMode.SCHEME).scheme("Oranges").fill("dark-orange")
                .scale(heat.HeatmapColorScale.EXPONENTIAL).exponent(0.5).steps(64).reverse(False))
    panel.cell_gap(1).show_legend()
    return lettered(panel, [query(expr, "{{le}}", form=PromQueryFormat.HEATMAP)])


def rows(title, description, columns, *, names, order=(), hidden=False, units=None, texts=None, width=12, height=8, alerts=(), colors=None):
    """A table: `columns` are its queries by the name of their column; rows are joined by their labels, which `names` names. Numbers are
    `hidden` where being there is all that they say."""
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
            link = {"title": f"The dashboard of this {label}", "url": PAGE_OF[label]}
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
    """As the data source for Prometheus reads it, which adds what an event is called."""

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
    """A dashboard with what they all have: data source, cluster, annotations, and links to the others."""
    made = dashboard.Dashboard(title).uid(uid).description(description).tags(["hactl"]).editable().timezone("browser")
    made.refresh("30s").time(since, "now").tooltip(models.DashboardCursorSync.CROSSHAIR)
    made.with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    made.with_variable(variable("cluster", "Cluster", "label_values(hactl_leader, cluster)",
                                "The label of the targets; empty where there is none."))
    made.annotation(Annotation(
        "Fencing", RED, f'max by (node) ({of("hactl_node_fence_state", state="~Fencing|Fenced")}) == 1',
        "{{node}} is fenced", "Its epoch is closed: nothing that it still says counts, and what ran there is recovered elsewhere."))
    made.annotation(Annotation(
        "Proof", ORANGE, f'sum by (method) (increase({of("hactl_fences_total", result="Confirmed")}[$__rate_interval])) > 0',
        "A node is proven dead", "By {{method}}."))
    made.annotation(Annotation(
        "Leader", BLUE, f'sum by (instance) (increase({of("hactl_leader_transitions_total", transition="became")}[$__rate_interval])) > 0',
        "Another controller leads", "{{instance}}"))
    made.link(dashboard.DashboardLink("hactl").type(models.DashboardLinkType.DASHBOARDS).tags(["hactl"]).as_dropdown(True)
              .include_vars(True).keep_time(True).icon("external link"))
    made.link(dashboard.DashboardLink("What to do").type(models.DashboardLinkType.LINK).url(f"{DOCS}/runbooks.md").icon("doc")
              .tooltip("A page for each alert").target_blank(True))
    made.link(dashboard.DashboardLink("Metrics").type(models.DashboardLinkType.LINK).url(f"{DOCS}/metrics.md").icon("doc")
              .tooltip("What each number means").target_blank(True))
    return made


def row(made, title, *panels):
    """A row and its panels."""
    made.with_row(dashboard.Row(title))
    for panel in panels:
        made.with_panel(panel)
