// What a dashboard of ours may be: Grafana's own types, stricter where Grafana leaves open what a panel's plugin takes.
import type { AnnotationQuery, Dashboard, DataSourceRef, FieldConfig, FieldConfigSource, Panel, RowPanel } from '@grafana/schema';
import type * as bargauge from '@grafana/schema/dist/esm/raw/composable/bargauge/panelcfg/x/BarGaugePanelCfg_types.gen.js';
import type * as heatmap from '@grafana/schema/dist/esm/raw/composable/heatmap/panelcfg/x/HeatmapPanelCfg_types.gen.js';
import type * as stat from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen.js';
import type * as statetimeline from '@grafana/schema/dist/esm/raw/composable/statetimeline/panelcfg/x/StateTimelinePanelCfg_types.gen.js';
import type * as table from '@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen.js';
import type * as timeseries from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen.js';

// In JSON a member of an enumeration is its value.
type Plain<T> = T extends string ? `${T}` : T extends number ? T : T extends (infer U)[] ? Plain<U>[] : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;
// All members are optional, because JSON has no undefined.
type Part<T> = T extends unknown[] ? T : T extends object ? { [K in keyof T]?: Part<T[K]> } : T;

// The query of the data source for Prometheus, which is not part of @grafana/schema.
interface Query {
  refId: string;
  expr: string;
  range: boolean;
  instant: boolean;
  datasource?: DataSourceRef;
  format?: 'time_series' | 'table' | 'heatmap';
  legendFormat?: string;
  interval?: string;
}

interface TypedPanel<Name extends string, Options, Custom> extends Omit<Panel, 'type' | 'options' | 'fieldConfig' | 'targets'> {
  type: Name;
  title: string;
  description: string;
  id: number;
  options: Part<Options>;
  fieldConfig?: { defaults: Omit<FieldConfig, 'custom'> & { custom?: Part<Custom> }; overrides: FieldConfigSource['overrides'] };
  targets: Query[];
}

type KnownPanel =
  | TypedPanel<'bargauge', bargauge.Options, Record<string, never>>
  | TypedPanel<'heatmap', heatmap.Options, heatmap.FieldConfig>
  | TypedPanel<'stat', stat.Options, Record<string, never>>
  | TypedPanel<'state-timeline', statetimeline.Options, statetimeline.FieldConfig>
  | TypedPanel<'table', table.Options, table.FieldConfig>
  | TypedPanel<'timeseries', timeseries.Options, timeseries.FieldConfig>;

// As the data source for Prometheus reads it.
interface Annotation extends Omit<AnnotationQuery, 'target'> {
  target: Query;
  titleFormat: string;
  textFormat: string;
}

export type Document = Plain<
  Omit<Dashboard, 'panels' | 'annotations'> & { uid: string; panels: (KnownPanel | RowPanel)[]; annotations: { list: Annotation[] } }
>;
