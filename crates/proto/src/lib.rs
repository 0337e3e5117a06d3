//! Wire messages of Istio's L4 contracts and of Lateen's own, generated from `proto/` and checked in. Their gRPC clients are
//! behind the feature `rpc`. The crate owns no meaning: the code that parses a message decides what a field implies and what is
//! refused.
//!
//! `cargo run -p lateen-proto --example generate` writes `src/gen` anew; a test proves that it is current.
#![forbid(unsafe_code)]

/// Istio's packages: workload discovery, authorization, node-local hand-over, certificates.
pub mod istio {
    /// WDS: workloads and services.
    #[allow(missing_docs, clippy::all)]
    pub mod workload {
        include!("gen/istio.workload.rs");

        /// ZDS: how the node agent hands pods' network namespaces to the node proxy.
        pub mod zds {
            include!("gen/istio.workload.zds.rs");
        }
    }

    /// L4 authorization policies.
    #[allow(missing_docs, clippy::all)]
    pub mod security {
        include!("gen/istio.security.rs");
    }

    /// Version 1 services.
    pub mod v1 {
        /// The certificate authority.
        #[allow(missing_docs, clippy::all)]
        pub mod auth {
            include!("gen/istio.v1.auth.rs");
        }
    }
}

/// Lateen's own contracts.
pub mod lateen {
    /// How the node agent keeps a node proxy's listeners for its successor.
    #[allow(missing_docs, clippy::all)]
    pub mod listener_store {
        include!("gen/lateen.listenerstore.rs");
    }

    /// Resources of proxies that read requests.
    #[allow(missing_docs, clippy::all)]
    pub mod l7 {
        include!("gen/lateen.l7.rs");
    }
}

/// The part of Envoy's API that carries resources: delta ADS.
pub mod envoy {
    /// Services.
    pub mod service {
        /// Discovery.
        pub mod discovery {
            /// Version 3 of the transport protocol, the only one in use.
            #[allow(missing_docs, clippy::all)]
            pub mod v3 {
                include!("gen/envoy.service.discovery.v3.rs");
            }
        }
    }
}

/// The part of OTLP that a proxy sends: logs and traces.
pub mod opentelemetry {
    /// Its packages, nested as the generated code names them.
    #[allow(missing_docs, clippy::all)]
    pub mod proto {
        pub mod common {
            pub mod v1 {
                include!("gen/opentelemetry.proto.common.v1.rs");
            }
        }
        pub mod resource {
            pub mod v1 {
                include!("gen/opentelemetry.proto.resource.v1.rs");
            }
        }
        pub mod logs {
            pub mod v1 {
                include!("gen/opentelemetry.proto.logs.v1.rs");
            }
        }
        pub mod trace {
            pub mod v1 {
                include!("gen/opentelemetry.proto.trace.v1.rs");
            }
        }
        pub mod collector {
            pub mod logs {
                pub mod v1 {
                    include!("gen/opentelemetry.proto.collector.logs.v1.rs");
                }
            }
            pub mod trace {
                pub mod v1 {
                    include!("gen/opentelemetry.proto.collector.trace.v1.rs");
                }
            }
        }
    }
}

/// The part of `google.rpc` that xDS error details use.
pub mod google {
    /// Status of a call.
    #[allow(missing_docs, clippy::all)]
    pub mod rpc {
        include!("gen/google.rpc.rs");
    }
}

pub use envoy::service::discovery::v3 as discovery;
pub use istio::v1::auth;
pub use istio::workload::zds;
pub use istio::{security, workload};
pub use lateen::{l7, listener_store};
pub use opentelemetry::proto as otlp;

/// xDS type of [`workload::Address`].
pub const ADDRESS_TYPE: &str = "type.googleapis.com/istio.workload.Address";

/// xDS type of [`security::Authorization`].
pub const AUTHORIZATION_TYPE: &str = "type.googleapis.com/istio.security.Authorization";

/// xDS type of [`l7::Authorization`].
pub const REQUEST_AUTHORIZATION_TYPE: &str = "type.googleapis.com/lateen.l7.Authorization";

/// xDS type of [`l7::Authentication`].
pub const AUTHENTICATION_TYPE: &str = "type.googleapis.com/lateen.l7.Authentication";

/// xDS type of [`l7::Gateway`].
pub const GATEWAY_TYPE: &str = "type.googleapis.com/lateen.l7.Gateway";

/// xDS type of [`l7::Binding`].
pub const BINDING_TYPE: &str = "type.googleapis.com/lateen.l7.Binding";
