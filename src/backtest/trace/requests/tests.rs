use std::io::Write as _;

use super::*;
use crate::backtest::trace::{Format, read, read_as};

const AZURE: &str = include_str!("../../../../tests/fixtures/backtest/azure-2023-conversation.csv");
const AZURE_2024: &str = "TIMESTAMP,ContextTokens,GeneratedTokens\n\
    2024-05-12 00:00:00.004142+00:00,628,36\n2024-05-12 00:00:00.092104+00:00,1287,152\n";
const MOONCAKE: &str = include_str!("../../../../tests/fixtures/backtest/mooncake-conversation.jsonl");
const BURSTGPT: &str = include_str!("../../../../tests/fixtures/backtest/burstgpt-made-up.csv");

fn requests(text: &str) -> Vec<TracedRequest> {
    RequestTrace::open(text.as_bytes()).unwrap().collect::<Result<_, _>>().unwrap()
}

#[track_caller]
fn refused(text: &str, words: &str) {
    let told = read(text.as_bytes(), None).unwrap_err().to_string();
    assert!(told.contains(words), "{told}");
}

#[test]
fn azures_traces_are_known_by_their_first_line() {
    let requests = requests(AZURE);
    assert_eq!(
        requests[0],
        TracedRequest { input_tokens: 374, output_tokens: 44, ..TracedRequest::default() }
    );
    assert!((requests[1].at_seconds - 4.314_579).abs() < 1e-9, "{:?}", requests[1]);
    let later = self::requests(AZURE_2024);
    assert!((later[1].at_seconds - 0.087_962).abs() < 1e-9, "with an offset: {:?}", later[1]);
}

#[test]
fn a_calendar_tells_when_a_trace_begins_and_seconds_do_not() {
    let begins = |text: &str| read(text.as_bytes(), None).unwrap().begins.map(|at| at.to_rfc3339());
    assert_eq!(begins(AZURE_2024).as_deref(), Some("2024-05-12T00:00:00.004142+00:00"));
    assert_eq!(begins(BURSTGPT), None);
    assert_eq!(begins(MOONCAKE), None);
}

#[test]
fn mooncakes_requests_keep_the_hashes_of_their_prompts() {
    let requests = requests(MOONCAKE);
    assert_eq!((requests[0].input_tokens, requests[0].output_tokens), (6758, 500));
    assert_eq!(requests[0].prefix.len(), 6758_usize.div_ceil(RequestFormat::BLOCK_TOKENS as usize));
    assert_eq!(requests[3].prefix, [0, 462], "the first block is everybody's");
    assert_eq!(requests[4].at_seconds, 5.999);
}

#[test]
fn burstgpts_columns_are_found_by_name() {
    let requests = requests(BURSTGPT);
    assert_eq!(requests[0].at_seconds, 0.0, "from the first request on");
    assert_eq!(
        (requests[1].at_seconds, requests[1].input_tokens, requests[1].output_tokens),
        (40.0, 1087, 230)
    );
    assert_eq!(requests[2].output_tokens, 0, "it failed");
    let more = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n\
        5.5,a,1.2,ChatGPT,10.0,20.0,30.0,API log\n";
    assert_eq!(self::requests(more)[0].output_tokens, 20);
}

#[test]
fn requests_are_summed_in_slots() {
    let text = "TIMESTAMP,ContextTokens,GeneratedTokens\n\
        2023-11-16 18:00:00.0000000,100,10\n2023-11-16 18:00:04.9999999,50,5\n2023-11-16 18:00:12.0000000,7,1\n";
    let trace = read(text.as_bytes(), None).unwrap();
    assert_eq!(trace.slots.len(), 3);
    assert_eq!(
        (trace.slots[0].requests, trace.slots[0].input_tokens, trace.slots[0].output_tokens),
        (2.0, 150.0, 15.0)
    );
    assert_eq!(trace.slots[1].requests, 0.0, "between two requests nothing arrived, and that is known");
    assert_eq!(read(text.as_bytes(), Some(1)).unwrap().slots.len(), 1);
}

#[test]
fn a_format_may_be_named_and_has_to_fit() {
    assert_eq!(
        read_as(AZURE.as_bytes(), Format::named("azure"), None).unwrap(),
        read(AZURE.as_bytes(), None).unwrap()
    );
    let told = read_as(AZURE.as_bytes(), Format::named("burstgpt"), None).unwrap_err().to_string();
    assert!(told.contains("no column `Timestamp`"), "{told}");
    let told = read_as(AZURE.as_bytes(), Format::named("bins"), None).unwrap_err().to_string();
    assert!(told.contains("line 1: the first line must be"), "{told}");
    for name in Format::NAMES {
        assert!(Format::named(name).is_some(), "{name}");
    }
    assert_eq!(Format::named("parquet"), None);
}

#[test]
fn a_bad_request_is_named_with_its_line() {
    let azure = |rows: &str| format!("TIMESTAMP,ContextTokens,GeneratedTokens\n{rows}");
    refused(&azure("yesterday,1,1\n"), "line 2: the time `yesterday` is none");
    refused(&azure("2023-11-16 18:00:00.0,1\n"), "line 2: the output is missing");
    refused(&azure("2023-11-16 18:00:00.0,-1,1\n"), "line 2: the input is -1");
    refused(&azure("2023-11-16 18:00:00.0,1.5,1\n"), "line 2: the input is 1.5");
    refused(&azure("2023-11-16 18:00:00.0,NaN,1\n"), "line 2: the input is NaN");
    refused(&azure("2023-11-16 18:00:01.0,1,1\n\n2023-11-16 18:00:00.0,1,1\n"), "line 4: its time is before");
    refused(
        &azure("1823-11-16 18:00:00.0,1,1\n2023-11-16 18:00:00.0,1,1\n"),
        "line 3: its time is a hundred years",
    );
    refused(&azure(""), "no requests");
    let burst =
        |rows: &str| format!("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n{rows}");
    refused(&burst("inf,m,1,1,2,API log\n"), "line 2: the time is inf");
    refused(&burst("5,m,1,1e99,2,API log\n"), "line 2: the output is 1e99");
    let mooncake = r#"{"timestamp":0,"input_length":5,"output_length":1,"hash_ids":[1]}"#;
    refused(&format!("{mooncake}\n{{\"timestamp\":1}}\n"), "line 2: no request in JSON: missing field");
    refused(&format!("{mooncake}\n{}\n", mooncake.replace(":0,", ":-1,")), "line 2: timestamp is -1");
    refused(
        &format!("{mooncake}\n{}\n", mooncake.replace(":5,", ":99999999999,")),
        "line 2: input_length is 99999999999",
    );
    refused(&format!("{{\"input_length\":{}", "1".repeat(1 << 20)), "line 1: longer than 65536 bytes");
    refused("a,b,c\n1,2,3\n", "line 1: the first line must be");
}

/// Rows that repeat, after a header.
struct Endless<'a> {
    header: &'a [u8],
    row: &'a [u8],
    left: usize,
    at: usize,
}

impl std::io::Read for Endless<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if !self.header.is_empty() {
            return self.header.read(into);
        }
        if self.at == self.row.len() {
            if self.left == 0 {
                return Ok(0);
            }
            (self.left, self.at) = (self.left - 1, 0);
        }
        let taken = (&self.row[self.at..]).read(into)?;
        self.at += taken;
        Ok(taken)
    }
}

#[test]
fn a_file_of_any_length_is_read_in_the_memory_of_one_row() {
    // Ten gigabytes are not written here; what is read is dropped, and the reader holds one line.
    let row = b"40.5,ChatGPT,100,20,120,API log\n".repeat(1000);
    let header = b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n";
    let endless = Endless { header, row: &row, left: 199, at: 0 };
    let trace = read(std::io::BufReader::new(endless), None).unwrap();
    assert_eq!(trace.slots.len(), 1);
    assert_eq!(trace.slots[0].requests, 200_000.0);
}

#[test]
fn gzip_is_read_too() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(MOONCAKE.as_bytes()).unwrap();
    let bytes = encoder.finish().unwrap();
    assert_eq!(RequestTrace::open(&bytes[..]).unwrap().count(), requests(MOONCAKE).len());
}

proptest::proptest! {
    #[test]
    fn any_rows_are_requests_or_an_error(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
        for header in ["TIMESTAMP,ContextTokens,GeneratedTokens\n", "{\"input_length\":1}\n", "Timestamp,Request tokens,Response tokens\n"] {
            drop(read(&[header.as_bytes(), &bytes].concat()[..], None));
        }
    }
}
