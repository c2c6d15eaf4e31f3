//! What `/metrics` and `/jmx` have about the RPC ports of a server.

use hearth_types::{RpcFigures, RpcMethodFigures};

use crate::jmx::Bean;
use crate::metrics::Metric;

/// Returns the metrics of a server's RPC ports. A method without a call yet has no series, so that a scrape stays short.
pub fn rpc_metrics(ports: &[RpcFigures]) -> Vec<Metric> {
    let mut all = Vec::new();
    let mut of_methods = |metric: fn(&RpcMethodFigures) -> Metric| {
        for figures in ports {
            let called = figures.methods.iter().filter(|method| method.queue.count() > 0);
            all.extend(
                called
                    .map(|method| metric(method).label("port", figures.port.to_string()).label("method", method.name)),
            );
        }
    };
    of_methods(|method| {
        Metric::histogram(
            "hearth_rpc_queue_time_seconds",
            "Time from the arrival of a call's last byte to the start of the call",
            method.queue,
        )
    });
    of_methods(|method| {
        Metric::histogram(
            "hearth_rpc_processing_time_seconds",
            "Time from the start of a call to its response, with waits for the journal",
            method.processing,
        )
    });
    of_methods(|method| {
        Metric::counter("hearth_rpc_call_errors", "Calls that were answered with an exception", method.errors)
    });
    let mut of_ports = |metric: fn(&RpcFigures) -> Metric| {
        all.extend(ports.iter().map(|figures| metric(figures).label("port", figures.port.to_string())));
    };
    of_ports(|port| Metric::gauge("hearth_rpc_connections", "RPC connections that are open", port.connections));
    of_ports(|port| {
        Metric::gauge("hearth_rpc_calls_in_progress", "Calls that have no response yet", port.calls_in_progress)
    });
    of_ports(|port| {
        Metric::counter("hearth_rpc_received_bytes", "Bytes received over RPC connections", port.received_bytes)
    });
    of_ports(|port| Metric::counter("hearth_rpc_sent_bytes", "Bytes sent over RPC connections", port.sent_bytes));
    of_ports(|port| {
        Metric::counter(
            "hearth_rpc_refused_connections",
            "RPC connections closed at once because the maximum was open and busy",
            port.refused_connections,
        )
    });
    of_ports(|port| {
        Metric::counter(
            "hearth_rpc_authorization_failures",
            "RPC connections refused because their user may not act for another user",
            port.authorization_failures,
        )
    });
    all
}

/// Returns the beans `RpcActivityForPortN` and `RpcDetailedActivityForPortN` of one port.
///
/// `service`: "NameNode" or "DataNode". Times are means since the start in milliseconds; Apache's are of the last ten
/// seconds with a call. Sources: Hadoop's `RpcMetrics` and `RpcDetailedMetrics`.
pub fn rpc_beans(service: &str, host_name: &str, figures: &RpcFigures) -> Vec<Bean> {
    let RpcFigures { port, .. } = figures;
    let (queue, processing) = figures.totals();
    let response_ms = queue.mean_ms() + processing.mean_ms();
    let errors: u64 = figures.methods.iter().map(|method| method.errors).sum();
    let activity = Bean::new(format!("Hadoop:service={service},name=RpcActivityForPort{port}"))
        .with("tag.port", port.to_string())
        .with("tag.serverName", service)
        .with("tag.Context", "rpc")
        .with("tag.Hostname", host_name)
        .with("ReceivedBytes", figures.received_bytes)
        .with("SentBytes", figures.sent_bytes)
        .with("RpcQueueTimeNumOps", queue.count())
        .with("RpcQueueTimeAvgTime", queue.mean_ms())
        .with("RpcProcessingTimeNumOps", processing.count())
        .with("RpcProcessingTimeAvgTime", processing.mean_ms())
        .with("RpcResponseTimeNumOps", processing.count())
        .with("RpcResponseTimeAvgTime", response_ms)
        .with("RpcAuthenticationSuccesses", figures.authorizations)
        .with("RpcAuthenticationFailures", 0)
        .with("RpcAuthorizationSuccesses", figures.authorizations)
        .with("RpcAuthorizationFailures", figures.authorization_failures)
        .with("RpcCallSuccesses", processing.count().saturating_sub(errors))
        .with("TotalRequests", queue.count())
        .with("NumOpenConnections", figures.connections)
        .with("NumInProcessHandler", figures.calls_in_progress)
        .with("NumDroppedConnections", figures.refused_connections)
        // Calls start when they arrive: there is no queue, and no call is sent back to its client.
        .with("CallQueueLength", 0)
        .with("RpcClientBackoff", 0)
        .with("RpcSlowCalls", 0);
    let mut detailed = Bean::new(format!("Hadoop:service={service},name=RpcDetailedActivityForPort{port}"))
        .with("tag.port", port.to_string())
        .with("tag.Context", "rpcdetailed")
        .with("tag.Hostname", host_name);
    for RpcMethodFigures { name, processing, .. } in &figures.methods {
        let name = capitalized(name);
        detailed = detailed
            .with(&format!("{name}NumOps"), processing.count())
            .with(&format!("{name}AvgTime"), processing.mean_ms());
    }
    vec![activity, detailed]
}

/// Returns the name with its first letter in upper case, as in the names of attributes.
fn capitalized(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hearth_types::Histogram;

    use super::*;

    fn figures() -> RpcFigures {
        let method = |name, calls, errors| {
            let (queue, processing) = (Histogram::default(), Histogram::default());
            queue.observe_many(Duration::from_millis(1), calls);
            processing.observe_many(Duration::from_millis(3), calls);
            RpcMethodFigures { name, queue: queue.snapshot(), processing: processing.snapshot(), errors }
        };
        RpcFigures {
            port: 8020,
            methods: vec![method("getFileInfo", 4, 1), method("delete", 0, 0), method("other", 1, 1)],
            connections: 2,
            calls_in_progress: 1,
            received_bytes: 100,
            sent_bytes: 200,
            refused_connections: 5,
            authorizations: 6,
            authorization_failures: 7,
        }
    }

    #[test]
    fn methods_without_calls_have_no_series() {
        let text = crate::metrics::text(&rpc_metrics(&[figures()])).unwrap();
        for line in [
            "hearth_rpc_queue_time_seconds_count{port=\"8020\",method=\"getFileInfo\"} 4",
            "hearth_rpc_processing_time_seconds_sum{port=\"8020\",method=\"other\"} 0.003",
            "hearth_rpc_call_errors_total{port=\"8020\",method=\"getFileInfo\"} 1",
            "hearth_rpc_connections{port=\"8020\"} 2",
            "hearth_rpc_refused_connections_total{port=\"8020\"} 5",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
        assert!(!text.contains("delete"));
        assert_eq!(text.matches("# TYPE hearth_rpc_queue_time_seconds ").count(), 1);
    }

    #[test]
    fn beans_have_the_attributes_of_methods() {
        let beans = rpc_beans("NameNode", "here", &figures());
        let value = |bean: usize, name: &str| {
            let found = beans[bean].attributes.iter().find(|(attribute, _)| attribute == name);
            found.map(|(_, value)| value.as_f64().unwrap())
        };
        assert_eq!(beans[0].name, "Hadoop:service=NameNode,name=RpcActivityForPort8020");
        assert_eq!(value(0, "RpcQueueTimeNumOps"), Some(5.0));
        assert_eq!(value(0, "RpcProcessingTimeAvgTime"), Some(3.0));
        assert_eq!(value(0, "RpcCallSuccesses"), Some(3.0));
        assert_eq!(beans[1].name, "Hadoop:service=NameNode,name=RpcDetailedActivityForPort8020");
        assert_eq!((value(1, "GetFileInfoNumOps"), value(1, "GetFileInfoAvgTime")), (Some(4.0), Some(3.0)));
        assert_eq!(value(1, "DeleteNumOps"), Some(0.0));
    }
}
