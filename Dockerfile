# The build context is a folder that holds the static binary:
#   RUSTFLAGS='-C target-feature=+crt-static' cargo build --release --target x86_64-unknown-linux-gnu
#   docker build -f Dockerfile target/x86_64-unknown-linux-gnu/release
FROM scratch
COPY orchestratord /usr/local/bin/orchestratord
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/orchestratord"]
