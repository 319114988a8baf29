//! The CRD conversion webhook: TLS server, ConversionReview protocol, certificates, drain.
