//! A KV cache in pages: against the same keys in rows.
mod support;

use falchion::*;
use support::{distance, numbers};

const Q: [usize; 4] = [2, 3, 4, 16];
const ROWS: [usize; 4] = [2, 8, 2, 16];
const PAGES: [usize; 4] = [5, 4, 2, 16];
const TABLE: [i32; 4] = [3, 0, 1, 4];
const USED: [i32; 2] = [7, 4];

fn problem(page_size: usize) -> Problem {
    Problem {
        keys: ROWS[1],
        heads_k: 2,
        cache: true,
        page_size,
        used_k: true,
        band: Band::causal(Align::BottomRight),
        ..Problem::new(DType::F32, Q)
    }
}

fn run(
    problem: &Problem,
    q: &[f32],
    cache: [&[f32]; 2],
    shape: [usize; 4],
    pages: Sequences<'_>,
    table: Option<Tensor<'_>>,
) -> Result<Vec<f32>, Error> {
    let plan = Plan::new(problem, Pass::Forward, Target::default())?;
    let mut o = vec![f32::NAN; q.len()];
    let view = TensorMut::new(&mut o, Q)?;
    let all = Forward::new(Tensor::new(q, Q)?, Tensor::new(cache[0], shape)?, Tensor::new(cache[1], shape)?, view);
    let sequences = Sequences { used_k: Some(Lengths::new(&USED)), ..pages };
    plan.forward(Forward { page_table: table, sequences, ..all }, &mut Workspace::default())?;
    Ok(o)
}

#[test]
fn pages_are_rows() -> Result<(), Error> {
    let page = PAGES[1] * PAGES[2] * PAGES[3];
    let [q, k, v] = [0, 1, 2].map(|i| numbers(i, if i == 0 { Q.iter().product() } else { 5 * page }));
    let in_rows =
        |x: &[f32]| -> Vec<f32> { TABLE.iter().flat_map(|&n| x[n as usize * page..][..page].to_vec()).collect() };
    let (rows_k, rows_v) = (in_rows(&k), in_rows(&v));
    let expected = run(&problem(0), &q, [&rows_k, &rows_v], ROWS, Sequences::default(), None)?;
    let table = Tensor::new(&TABLE, [2, 2, 1, 1])?;
    assert_eq!(run(&problem(4), &q, [&k, &v], PAGES, Sequences::default(), Some(table))?, expected);

    let starts = Sequences { page_starts: Some(Lengths::new(&[0, 2, 4])), ..Sequences::default() };
    let one_row = Tensor::new(&TABLE, [1, 4, 1, 1])?;
    let o = run(&problem(4), &q, [&k, &v], PAGES, starts, Some(one_row))?;
    assert!(distance(&o, &expected) == 0.0 && o.iter().any(|x| x.abs() > 0.01));

    let why =
        run(&problem(4), &q, [&k, &v], PAGES, Sequences::default(), Some(Tensor::new(&[3, 0, 1, 5], [2, 2, 1, 1])?));
    assert!(why.is_ok(), "the last page of sequence 1 has none of its 4 keys");
    let why =
        run(&problem(4), &q, [&k, &v], PAGES, Sequences::default(), Some(Tensor::new(&[3, 5, 1, 4], [2, 2, 1, 1])?));
    assert!(why.unwrap_err().why.contains("page_table[0][1] = 5"));
    let short = Sequences { page_starts: Some(Lengths::new(&[0, 4])), ..Sequences::default() };
    let why = run(&problem(4), &q, [&k, &v], PAGES, short, Some(one_row)).unwrap_err();
    assert!(why.why.contains("page_starts has 2 numbers; it must have 3"), "{}", why.why);
    Ok(())
}
