//! Many replicas from one end to another, over streams and, as the yardstick, over gRPC.

#[allow(dead_code)] // Until the load generator beside it calls it.
mod grpc;
