//! Generates the gRPC code from `proto/`, without a protoc on the machine.

use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto/externalscaler.proto");
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_source_info(true).include_imports(true).open_file("externalscaler.proto")?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    // For gRPC reflection at run time.
    std::fs::write(out.join("externalscaler.bin"), compiler.encode_file_descriptor_set())?;
    tonic_prost_build::configure().compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
