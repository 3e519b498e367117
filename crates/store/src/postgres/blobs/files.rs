//! Files that came with a job.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_postgres::types::Type;

use super::super::param::Text;
use super::super::pool::Pool;
use super::super::weeks;
use super::PIECE;
use crate::{AttachedFile, AttachedFiles};

pub(super) const TABLES: [&str; 2] = ["files", "file_pieces"];

/// All of them or none.
pub(super) fn put(pool: &Pool, job: &str, attached: &AttachedFiles) -> io::Result<()> {
    if attached.is_empty() {
        return Ok(());
    }
    let paths: Vec<_> = attached.keys().map(|path| path.display().to_string()).collect();
    let texts: Vec<_> = paths.iter().map(|path| Text(path)).collect();
    let executable: Vec<_> = attached.values().map(|file| file.executable).collect();
    let (mut of, mut numbers, mut pieces) = (vec![], vec![], vec![]);
    for (path, file) in paths.iter().zip(attached.values()) {
        for (number, piece) in file.content.chunks(PIECE).enumerate() {
            of.push(Text(path));
            numbers.push(number as i32);
            pieces.push(piece);
        }
    }
    pool.with("writing files", |connection| {
        weeks::with(connection, [job], |connection| {
            connection.query(
                "WITH files AS (INSERT INTO steadfast.files (job, path, executable) \
               SELECT $1, f.path, f.executable FROM unnest($2, $3) AS f(path, executable)) \
             INSERT INTO steadfast.file_pieces (job, path, piece, bytes) \
             SELECT $1, p.path, p.piece, p.bytes FROM unnest($4, $5, $6) AS p(path, piece, bytes)",
                &[
                    (&Text(job), Type::TEXT),
                    (&texts, Type::TEXT_ARRAY),
                    (&executable, Type::BOOL_ARRAY),
                    (&of, Type::TEXT_ARRAY),
                    (&numbers, Type::INT4_ARRAY),
                    (&pieces, Type::BYTEA_ARRAY),
                ],
            )
        })
    })?;
    Ok(())
}

/// The paths of all, and whether they can be executed.
fn all(pool: &Pool, job: &str) -> io::Result<Vec<(String, bool)>> {
    let rows = pool.with("reading files", |connection| {
        let sql = "SELECT path, executable FROM steadfast.files WHERE job = $1 ORDER BY path";
        connection.read(sql, &[(&Text(job), Type::TEXT)])
    })?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

pub(super) fn get(
    pool: &Arc<Pool>,
    job: &str,
    wanted: &BTreeSet<PathBuf>,
) -> io::Result<AttachedFiles> {
    let (all, mut files) = (all(pool, job)?, AttachedFiles::new());
    for wanted in wanted {
        let inside: Vec<_> =
            all.iter().filter(|(path, _)| Path::new(path).starts_with(wanted)).collect();
        if inside.is_empty() {
            let why = format!("the file {}: there is none", wanted.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        }
        for (path, executable) in inside {
            let mut content = vec![];
            reader(pool, job, path).read_to_end(&mut content)?;
            let file = AttachedFile { path: path.clone(), content, executable: *executable };
            files.insert(path.into(), file);
        }
    }
    Ok(files)
}

pub(super) fn names(pool: &Pool, job: &str, named: &str) -> io::Result<Vec<String>> {
    let all = all(pool, job)?.into_iter().map(|(path, _)| path);
    let mut inside: Vec<_> = all.filter(|path| Path::new(path).starts_with(named)).collect();
    if inside.is_empty() {
        return Err(io::ErrorKind::NotFound.into());
    }
    // Folder by folder.
    inside.sort_by(|a, b| a.split('/').cmp(b.split('/')));
    Ok(inside)
}

pub(super) fn open(
    pool: &Arc<Pool>,
    job: &str,
    path: &Path,
) -> io::Result<(Box<dyn Read + Send>, bool)> {
    let path = path.display().to_string();
    let rows = pool.with("reading files", |connection| {
        let sql = "SELECT executable FROM steadfast.files WHERE job = $1 AND path = $2";
        connection.read(sql, &[(&Text(job), Type::TEXT), (&Text(&path), Type::TEXT)])
    })?;
    let row = rows.first().ok_or(io::ErrorKind::NotFound)?;
    Ok((Box::new(reader(pool, job, &path)), row.get(0)))
}

pub(super) fn remove(pool: &Pool, job: &str) -> io::Result<()> {
    super::remove(pool, &[Text(job)], &TABLES)
}

/// A file, read piece by piece.
struct FileReader {
    pool: Arc<Pool>,
    job: String,
    path: String,
    next: i32,
    piece: io::Cursor<Vec<u8>>,
}

fn reader(pool: &Arc<Pool>, job: &str, path: &str) -> FileReader {
    let (job, path) = (job.to_owned(), path.to_owned());
    FileReader { pool: pool.clone(), job, path, next: 0, piece: io::Cursor::default() }
}

impl Read for FileReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.piece.read(buffer)?;
        if count > 0 || buffer.is_empty() {
            return Ok(count);
        }
        let Self { pool, job, path, next, .. } = self;
        let rows = pool.with("reading files", |connection| {
            connection.read(
                "SELECT bytes FROM steadfast.file_pieces WHERE job = $1 AND path = $2 AND piece = $3",
                &[
                    (&Text(job), Type::TEXT),
                    (&Text(path), Type::TEXT),
                    (next, Type::INT4),
                ],
            )
        })?;
        let Some(row) = rows.first() else { return Ok(0) };
        self.piece = io::Cursor::new(row.get(0));
        self.next += 1;
        self.piece.read(buffer)
    }
}
