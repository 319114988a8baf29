//! Leader election by one `coordination.k8s.io` Lease; knows nothing of Materialize.
