//! The text format that every Prometheus reads, version 0.0.4.
//!
//! The metrics library writes `OpenMetrics`, where a counter's family has no `_total` and build facts
//! are of type `info`; a reader of the older format would take such samples as untyped. So: names of
//! families as their samples have them, no `# EOF`, no `# UNIT`, and the samples in order.

pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(super) fn classic(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut family = Family::default();
    for line in open_metrics.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            family.write(&mut text);
            let (name, help) = help.split_once(' ').unwrap_or((help, ""));
            family = Family { name, help, ..Family::default() };
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            family.kind = kind.split_once(' ').map_or("untyped", |(_, kind)| kind);
        } else if !line.starts_with('#') {
            family.samples.push(line);
        }
    }
    family.write(&mut text);
    text
}

#[derive(Default)]
struct Family<'a> {
    name: &'a str,
    help: &'a str,
    kind: &'a str,
    samples: Vec<&'a str>,
}

impl Family<'_> {
    fn write(&mut self, text: &mut String) {
        let Self { name, help, kind, samples } = self;
        if samples.is_empty() {
            return;
        }
        let (suffix, kind) = match *kind {
            "counter" => ("_total", "counter"),
            "info" => ("_info", "gauge"),
            "unknown" => ("", "untyped"),
            kind => ("", kind),
        };
        text.push_str(&format!("# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}\n"));
        // The buckets of a histogram are in an order of their own.
        if kind != "histogram" {
            samples.sort_unstable();
        }
        for sample in samples {
            text.push_str(sample);
            text.push('\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_of_the_old_format_sees_counters_and_facts_typed() {
        let open = "# HELP jobs Jobs.\n# TYPE jobs counter\njobs_total{a=\"2\"} 1\njobs_total 3\n\
                    # HELP empty None.\n# TYPE empty counter\n\
                    # HELP build It.\n# TYPE build info\nbuild_info{version=\"1\"} 1\n\
                    # HELP took_seconds T.\n# TYPE took_seconds histogram\n# UNIT took_seconds seconds\n\
                    took_seconds_sum 1.0\n# EOF\n";
        assert_eq!(
            classic(open),
            "# HELP jobs_total Jobs.\n# TYPE jobs_total counter\njobs_total 3\njobs_total{a=\"2\"} 1\n\
             # HELP build_info It.\n# TYPE build_info gauge\nbuild_info{version=\"1\"} 1\n\
             # HELP took_seconds T.\n# TYPE took_seconds histogram\ntook_seconds_sum 1.0\n"
        );
    }
}
