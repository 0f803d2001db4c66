# Makes a crate in the directory $T that needs another of the registry $1.
cd "$T"
export CARGO_HOME=$T/home CARGO_NET_RETRY=0
mkdir -p src .cargo
cat >.cargo/config.toml <<EOF
[source.crates-io]
replace-with = "test"
[source.test]
registry = "sparse+https://$1/"
EOF
printf '[package]\nname = "x"\nversion = "1.0.0"\n[dependencies]\ngreeting = "1"\n' >Cargo.toml
echo 'fn main() { println!("{}", greeting::TEXT) }' >src/main.rs
