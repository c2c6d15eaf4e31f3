//! Keeps the library in memory when the JVM unloads the class loader that loaded it: its threads may still run.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
