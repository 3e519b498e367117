//! Files and logs are the same to those who use them, in a folder, in a database and in an object store.

mod s3;

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use steadfast_store::testing::TestCluster;
use steadfast_store::{
    AttachedFile, AttachedFiles, Blobs, Folder, LogChunk, LogName, LogProgress, LogState,
    ObjectBlobs, PostgresStorage, Storage as _,
};

/// All that is promised. Each case has a place of its own, which `open` makes.
fn suite<B: AsRef<dyn Blobs>>(open: impl Fn() -> B) {
    for (name, case) in [
        ("files_come_back_as_they_were_put", files_come_back_as_they_were_put as fn(&dyn Blobs)),
        (
            "a_log_grows_goes_on_where_it_is_told_and_ends",
            a_log_grows_goes_on_where_it_is_told_and_ends,
        ),
        (
            "a_log_of_many_pieces_is_read_whole_from_anywhere",
            a_log_of_many_pieces_is_read_whole_from_anywhere,
        ),
        (
            "a_log_that_ends_within_its_pieces_ends_there",
            a_log_that_ends_within_its_pieces_ends_there,
        ),
        ("a_log_ends_with_a_mark_where_the_room_did", a_log_ends_with_a_mark_where_the_room_did),
        (
            "a_log_of_which_nothing_is_here_yet_is_listed_as_partial",
            a_log_of_which_nothing_is_here_yet_is_listed_as_partial,
        ),
        ("what_is_of_no_job_is_found_when_it_is_old", what_is_of_no_job_is_found_when_it_is_old),
        ("odd_names_come_back_as_they_were", odd_names_come_back_as_they_were),
    ] {
        eprintln!("{name}");
        case(open().as_ref());
    }
}

#[test]
fn in_a_folder() {
    let all = tempfile::tempdir().unwrap();
    suite(|| {
        let folder = tempfile::tempdir_in(all.path()).unwrap().keep();
        Folder::new(folder).storage().blobs()
    });
}

#[test]
fn in_a_database() {
    let Some(cluster) = TestCluster::shared() else { return };
    suite(|| PostgresStorage::new(&cluster.database()).unwrap().blobs());
}

#[test]
fn in_a_folder_of_objects() {
    let all = tempfile::tempdir().unwrap();
    suite(|| {
        let folder = tempfile::tempdir_in(all.path()).unwrap().keep();
        Box::new(objects(&format!("file://{}", folder.display()))) as Box<dyn Blobs>
    });
}

fn objects(url: &str) -> ObjectBlobs {
    ObjectBlobs::open(url).unwrap()
}

fn file(path: &str, content: Vec<u8>, executable: bool) -> (PathBuf, AttachedFile) {
    (path.into(), AttachedFile { path: path.to_owned(), content, executable })
}

fn files_come_back_as_they_were_put(blobs: &dyn Blobs) {
    let large: Vec<u8> = (0..600_000_u32).map(|n| n as u8).collect();
    let all: AttachedFiles = [
        file("run.sh", b"true\n".to_vec(), true),
        file("empty", vec![], false),
        file("data/b-1", large.clone(), false),
        file("data/b/2", vec![1], false),
        file("data2/x", vec![2], false),
    ]
    .into();
    blobs.put_files("job", &all).unwrap();
    assert!(blobs.put_files("job", &all).is_err(), "they are there");
    let wanted = |names: &[&str]| names.iter().map(PathBuf::from).collect::<BTreeSet<_>>();
    assert_eq!(
        blobs.get_files("job", &wanted(&["run.sh", "empty", "data", "data2"])).unwrap(),
        all
    );
    let some = blobs.get_files("job", &wanted(&["data"])).unwrap();
    assert_eq!(
        some.keys().map(|path| path.display().to_string()).collect::<Vec<_>>(),
        ["data/b/2", "data/b-1"]
    );
    let missing = blobs.get_files("job", &wanted(&["run.sh", "dat"])).unwrap_err();
    assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
    assert_eq!(blobs.file_names("job", "data").unwrap(), ["data/b/2", "data/b-1"]);
    assert_eq!(blobs.file_names("job", "run.sh").unwrap(), ["run.sh"]);
    assert!(blobs.file_names("job", "dat").is_err() && blobs.file_names("other", "data").is_err());
    let (mut opened, executable) = blobs.open_file("job", Path::new("data/b-1")).unwrap();
    let mut read = vec![];
    opened.read_to_end(&mut read).unwrap();
    assert!(read == large && !executable);
    assert!(blobs.open_file("job", Path::new("run.sh")).unwrap().1);
    assert!(blobs.open_file("job", Path::new("nothing")).is_err());
    blobs.remove_files("job").unwrap();
    assert!(blobs.file_names("job", "run.sh").is_err());
}

fn log(name: &str) -> LogName {
    LogName { job: "job".into(), step: "step".to_owned(), name: name.to_owned() }
}

fn chunk(offset: u64, bytes: &[u8], last: bool) -> LogChunk<'_> {
    LogChunk { offset, bytes, last }
}

fn progress(length: u64, complete: bool) -> LogProgress {
    LogProgress { length, complete }
}

fn a_log_grows_goes_on_where_it_is_told_and_ends(blobs: &dyn Blobs) {
    let log = log("one");
    let put = |chunk: LogChunk<'_>| blobs.write_log(&log, chunk, true).unwrap();
    let text = || {
        let bytes = blobs.open_log(&log).unwrap().read(0, 1 << 20).unwrap();
        String::from_utf8(bytes).unwrap()
    };
    assert!(blobs.open_log(&log).is_err() && blobs.log_size(&log).unwrap().is_none());
    assert_eq!(put(chunk(0, b"", false)), progress(0, false), "a question");
    assert_eq!(blobs.log_size(&log).unwrap(), None);
    assert_eq!(put(chunk(0, b"one\ntwo\n", false)), progress(8, false));
    assert!(blobs.is_partial(&log));
    assert_eq!(put(chunk(100, b"far", false)), progress(8, false), "there would be a hole");
    assert_eq!(put(chunk(4, b"2\n", false)), progress(6, false));
    assert_eq!(text(), "one\n2\no\n", "what came later stays until the end is known");
    assert_eq!(put(chunk(0, b"", false)), progress(8, false));
    assert_eq!(put(chunk(8, b"three\n", false)), progress(14, false));
    assert_eq!(blobs.open_log(&log).unwrap().read(9, 3).unwrap(), b"hre");
    assert_eq!(blobs.open_log(&log).unwrap().read(14, 3).unwrap(), b"");
    assert_eq!(blobs.open_log(&log).unwrap().read(u64::MAX, 3).unwrap(), b"");
    assert_eq!(put(chunk(6, b"", true)), progress(6, true));
    blobs.mark_whole(&log).unwrap();
    assert_eq!((text(), blobs.is_partial(&log)), ("one\n2\n".to_owned(), false));
    assert_eq!(put(chunk(0, b"", false)), progress(6, true));
    let times = blobs.log_times(&log).unwrap();
    assert!(times[0].0 == 0 && times[0].1 > 1_500_000_000_000, "{times:?}");
    let mut seen = vec![];
    blobs.each_log("job", "step", &mut |name| seen.push(name.to_owned())).unwrap();
    assert_eq!(seen, ["one"]);
    blobs.remove("job");
    assert_eq!(blobs.log_size(&log).unwrap(), None);
    blobs.each_log("job", "step", &mut |name| panic!("{name}")).unwrap();
}

fn a_log_of_many_pieces_is_read_whole_from_anywhere(blobs: &dyn Blobs) {
    let log = log("long");
    let all: Vec<u8> = (0..900_000_u32).map(|n| (n % 251) as u8).collect();
    let mut offset = 0;
    for size in [1, 10, 5000, 20_000, 3, 300_000, 7, 500_000, usize::MAX] {
        let end = all.len().min(offset + size.min(all.len() - offset));
        let last = end == all.len();
        let told = blobs.write_log(&log, chunk(offset as u64, &all[offset..end], last), true);
        assert_eq!(told.unwrap(), progress(end as u64, last));
        offset = end;
    }
    // The same again, somewhere in it.
    blobs.write_log(&log, chunk(4000, &all[4000..350_000], false), true).unwrap();
    let reader = blobs.open_log(&log).unwrap();
    let mut read = vec![];
    loop {
        let piece = reader.read(read.len() as u64, 70_001).unwrap();
        if piece.is_empty() {
            break;
        }
        read.extend(piece);
    }
    assert!(read == all, "{} of {}", read.len(), all.len());
    assert_eq!(blobs.log_size(&log).unwrap(), Some(all.len() as u64));
}

fn a_log_that_ends_within_its_pieces_ends_there(blobs: &dyn Blobs) {
    let log = log("shorter");
    let all: Vec<u8> = (0..700_000_u32).map(|n| (n % 249) as u8).collect();
    blobs.write_log(&log, chunk(0, &all, false), true).unwrap();
    let told = blobs.write_log(&log, chunk(299_000, b"the end", true), true).unwrap();
    assert_eq!(told, progress(299_007, true));
    blobs.mark_whole(&log).unwrap();
    assert_eq!(blobs.log_size(&log).unwrap(), Some(299_007));
    let end = blobs.open_log(&log).unwrap().read(298_999, 100).unwrap();
    assert_eq!(end, [&all[298_999..299_000], b"the end"].concat());
    let states = blobs.log_states(&[log.clone(), LogName { name: "other".to_owned(), ..log }]);
    assert_eq!(states.unwrap(), [Some(LogState { length: 299_007, partial: false }), None]);
}

/// Of steps and files: with characters that paths of object stores have no place for.
fn odd_names_come_back_as_they_were(blobs: &dyn Blobs) {
    let odd = LogName {
        job: "job".into(),
        step: "wörk~50%#1".to_owned(),
        name: "wörk~50%#1_0_attempt_1".to_owned(),
    };
    blobs.write_log(&odd, chunk(0, b"x", true), true).unwrap();
    blobs.mark_whole(&odd).unwrap();
    let mut seen = vec![];
    blobs.each_log("job", &odd.step, &mut |name| seen.push(name.to_owned())).unwrap();
    assert_eq!(seen, [&*odd.name]);
    assert_eq!(blobs.open_log(&odd).unwrap().read(0, 9).unwrap(), b"x");
    let name = "a b/%2F~\u{e9}#?*";
    blobs.put_files("job", &[file(name, vec![7], false)].into()).unwrap();
    assert_eq!(blobs.file_names("job", "a b").unwrap(), [name]);
    let (mut opened, _) = blobs.open_file("job", Path::new(name)).unwrap();
    let mut read = vec![];
    opened.read_to_end(&mut read).unwrap();
    assert_eq!(read, [7]);
}

fn a_log_ends_with_a_mark_where_the_room_did(blobs: &dyn Blobs) {
    let log = log("cut");
    blobs.write_log(&log, chunk(0, b"one\n", false), true).unwrap();
    let cut = blobs.write_log(&log, chunk(4, b"two\n", false), false).unwrap();
    assert!(cut.complete && cut.length > 20, "{cut:?}");
    for (offset, last) in [(8, false), (0, true), (14, true)] {
        assert_eq!(blobs.write_log(&log, chunk(offset, b"x\n", last), true).unwrap(), cut);
    }
    let text = blobs.open_log(&log).unwrap().read(0, 1000).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.starts_with("one\n") && text.contains("what follows is not kept"), "{text}");
}

fn a_log_of_which_nothing_is_here_yet_is_listed_as_partial(blobs: &dyn Blobs) {
    let log = log("awaited");
    assert!(!blobs.is_partial(&log));
    blobs.mark_partial(&log).unwrap();
    assert!(blobs.is_partial(&log));
    assert_eq!(blobs.log_size(&log).unwrap(), Some(0));
    assert_eq!(blobs.log_times(&log).unwrap(), []);
    assert_eq!(blobs.write_log(&log, chunk(0, b"all\n", true), true).unwrap(), progress(4, true));
    blobs.mark_whole(&log).unwrap();
    blobs.mark_whole(&log).unwrap();
    assert!(!blobs.is_partial(&log));
}

fn what_is_of_no_job_is_found_when_it_is_old(blobs: &dyn Blobs) {
    blobs.write_log(&log("one"), chunk(0, b"x", true), true).unwrap();
    blobs.put_files("other", &[file("a", vec![1], false)].into()).unwrap();
    assert_eq!(blobs.unchanged_since(UNIX_EPOCH + Duration::from_secs(1)), []);
    #[allow(clippy::disallowed_methods, reason = "so that it is later")]
    let later = SystemTime::now() + Duration::from_mins(1);
    let found = blobs.unchanged_since(later);
    assert_eq!(found.iter().map(|job| &**job).collect::<BTreeSet<_>>(), ["job", "other"].into());
}
