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

#[test]
fn new_keys_are_written_and_seen() -> Result<(), Error> {
    let row = Q[1] * ROWS[2] * ROWS[3];
    let (q, fresh) = (numbers(0, Q.iter().product()), [numbers(3, 2 * row), numbers(4, 2 * row)]);
    let [mut k, mut v] = [1, 2].map(|i| numbers(i, ROWS.iter().product()));
    let expected = {
        let (mut k, mut v) = (k.clone(), v.clone());
        for (cache, new) in [(&mut k, &fresh[0]), (&mut v, &fresh[1])] {
            for (b, &used) in USED.iter().enumerate() {
                let at = (b * ROWS[1] + used as usize - Q[1]) * ROWS[2] * ROWS[3];
                cache[at..][..row].copy_from_slice(&new[b * row..][..row]);
            }
        }
        let o = run(&problem(0), &q, [&k, &v], ROWS, Sequences::default(), None)?;
        (o, k, v)
    };
    let plan = Plan::new(&Problem { append: true, ..problem(0) }, Pass::Forward, Target::default())?;
    let mut o = vec![f32::NAN; q.len()];
    let new = [2, Q[1], ROWS[2], ROWS[3]];
    let all = Append {
        q: Tensor::new(&q, Q)?,
        k: TensorMut::new(&mut k, ROWS)?,
        v: TensorMut::new(&mut v, ROWS)?,
        k_new: Tensor::new(&fresh[0], new)?,
        v_new: Tensor::new(&fresh[1], new)?,
        o: TensorMut::new(&mut o, Q)?,
        lse: None,
        page_table: None,
        rotary: None,
        sequences: Sequences { used_k: Some(Lengths::new(&USED)), ..Sequences::default() },
    };
    plan.append(all, &mut Workspace::default())?;
    assert!(distance(&o, &expected.0) < 1e-6 && k == expected.1 && v == expected.2);
    let why = run(&Problem { append: true, ..problem(0) }, &q, [&k, &v], ROWS, Sequences::default(), None);
    assert!(why.unwrap_err().why.contains("k_new"), "a cache that is only read is not written");
    Ok(())
}
