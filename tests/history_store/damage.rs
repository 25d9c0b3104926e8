//! Damaged, foreign and unwritable files.

use std::path::Path;

use super::{BEGIN, bits, chat, expected, files, fill, open};

type Damage = fn(&mut Vec<u8>);

fn damage(file: &Path, how: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(file).unwrap();
    how(&mut bytes);
    std::fs::write(file, bytes).unwrap();
}

#[test]
fn a_damaged_database_is_put_aside_and_a_new_one_begins() {
    let cases: [(&str, Damage); 5] = [
        ("half", |bytes| bytes.truncate(bytes.len() / 2)),
        ("header", |bytes| bytes[..64].fill(0xa5)),
        ("html", |bytes| *bytes = b"<html>not a database</html>".repeat(1000)),
        ("one byte", |bytes| bytes.truncate(1)),
        // A bit in each 64 bytes behind the header: every page of the trees.
        ("everywhere", |bytes| bytes.iter_mut().skip(4096).step_by(64).for_each(|byte| *byte ^= 0x10)),
    ];
    for (name, how) in cases {
        let folder = tempfile::tempdir().unwrap();
        let mut store = open(folder.path(), BEGIN);
        fill(&mut store, BEGIN..BEGIN + 130);
        drop(store);
        damage(&folder.path().join("history.redb"), how);

        let mut store = open(folder.path(), BEGIN + 130);
        let alarm = store.alarm().unwrap_or_else(|| panic!("{name}: no alarm"));
        assert!(alarm.contains("put aside"), "{name}: {alarm}");
        assert_eq!(store.all_points(&chat()).len(), 0, "{name}");
        fill(&mut store, BEGIN + 130..BEGIN + 132);
        drop(store);
        let mut store = open(folder.path(), BEGIN + 132);
        assert_eq!(bits(&store.all_points(&chat())), expected(BEGIN + 130..BEGIN + 132), "{name}");
        assert_eq!(store.alarm(), None, "{name}");
        let aside = files(folder.path()).into_iter().filter(|name| name.contains(".corrupt-")).count();
        assert_eq!(aside, 1, "{name}");
    }
}

#[test]
fn a_flipped_bit_anywhere_is_never_a_false_number() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("history.redb");
    let mut store = open(folder.path(), BEGIN);
    fill(&mut store, BEGIN..BEGIN + 70);
    drop(store);
    let sound = std::fs::read(&file).unwrap();
    let truth = expected(BEGIN..BEGIN + 70);
    for step in 0..60 {
        let mut bytes = sound.clone();
        let index = (step * 7919 + 13) % bytes.len();
        bytes[index] ^= 1 << (step % 8);
        std::fs::write(&file, &bytes).unwrap();
        let mut store = open(folder.path(), BEGIN + 70);
        let found = bits(&store.all_points(&chat()));
        // A bit of a free page changes nothing; a broken last commit falls back to the one before it.
        let told = store.alarm().is_some();
        assert!(
            found == truth || found == truth[..truth.len() - 1] || (told && found.is_empty()),
            "byte {index}"
        );
        let learned = store.learned(&chat());
        let newest = [BEGIN + 69, BEGIN + 68].map(|minute| Some(minute.to_le_bytes().to_vec()));
        assert!(newest.contains(&learned) || (told && learned.is_none()), "byte {index}: {learned:?}");
    }
}

#[test]
fn only_the_newest_damaged_databases_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    for now in 0..5 {
        drop(open(folder.path(), BEGIN + now));
        damage(&folder.path().join("history.redb"), |bytes| bytes[..32].fill(0));
    }
    drop(open(folder.path(), BEGIN + 5));
    assert_eq!(files(folder.path()).len(), 4, "{:?}", files(folder.path()));
}

#[test]
fn a_database_of_a_later_release_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path(), BEGIN);
    fill(&mut store, BEGIN..BEGIN + 2);
    drop(store);
    {
        let database = redb::Database::open(folder.path().join("history.redb")).unwrap();
        let transaction = database.begin_write().unwrap();
        let meta = redb::TableDefinition::<&str, u64>::new("meta");
        transaction.open_table(meta).unwrap().insert("format", 2).unwrap();
        transaction.commit().unwrap();
    }
    let mut store = open(folder.path(), BEGIN + 2);
    fill(&mut store, BEGIN + 2..BEGIN + 3);
    assert!(store.alarm().unwrap().contains("format 2 is of a later release"));
    assert!(!files(folder.path()).iter().any(|name| name.contains("corrupt")));
}

#[test]
fn a_folder_that_cant_be_made_degrades_to_memory_and_is_taken_up_when_it_can() {
    let root = tempfile::tempdir().unwrap();
    let blocked = root.path().join("blocked");
    std::fs::write(&blocked, "a file where the folder should be").unwrap();
    let mut store = open(&blocked.join("store"), BEGIN);
    fill(&mut store, BEGIN..BEGIN + 3);
    assert!(store.alarm().unwrap().contains("memory only"));
    assert_eq!(bits(&store.points(&chat(), 0, i64::MAX)), expected(BEGIN..BEGIN + 3));

    std::fs::remove_file(&blocked).unwrap();
    fill(&mut store, BEGIN + 3..BEGIN + 4);
    assert_eq!(store.alarm(), None);
    drop(store);
    let mut store = open(&blocked.join("store"), BEGIN + 4);
    assert_eq!(bits(&store.all_points(&chat())), expected(BEGIN..BEGIN + 4));
}
