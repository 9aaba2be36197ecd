//! Attention through the crate: against the definition, from many threads, and with what must be refused.
mod support;

use falchion::*;
use support::{distance, numbers};

const SHAPE: [usize; 4] = [2, 33, 4, 16];
const LSE: [usize; 4] = [2, 4, 33, 1];
const COUNT: usize = 2 * 33 * 4 * 16;

fn problem() -> Problem {
    Problem { lse: true, band: Band::causal(Align::BottomRight), ..Problem::new(DType::F32, SHAPE) }
}

fn target(backend: Backend) -> Target {
    Target { backend, threads: Some(2), ..Target::default() }
}

fn forward(plan: &Plan, x: &[Vec<f32>]) -> Result<(Vec<f32>, Vec<f32>), Error> {
    let (mut o, mut lse) = (vec![f32::NAN; COUNT], vec![f32::NAN; 2 * 4 * 33]);
    let run = Forward {
        q: Tensor::new(&x[0], SHAPE)?,
        k: Tensor::new(&x[1], SHAPE)?,
        v: Tensor::new(&x[2], SHAPE)?,
        o: TensorMut::new(&mut o, SHAPE)?,
        lse: Some(TensorMut::new(&mut lse, LSE)?),
        page_table: None,
        rotary: None,
        bias: None,
        mask: None,
        sequences: Sequences::default(),
    };
    plan.forward(run, &mut Workspace::default())?;
    Ok((o, lse))
}

fn backward(plan: &Plan, x: &[Vec<f32>], o: &[f32], lse: &[f32]) -> Result<[Vec<f32>; 3], Error> {
    let mut grads = [vec![f32::NAN; COUNT], vec![f32::NAN; COUNT], vec![f32::NAN; COUNT]];
    let [grad_q, grad_k, grad_v] = &mut grads;
    let run = Backward {
        q: Tensor::new(&x[0], SHAPE)?,
        k: Tensor::new(&x[1], SHAPE)?,
        v: Tensor::new(&x[2], SHAPE)?,
        o: Tensor::new(o, SHAPE)?,
        lse: Tensor::new(lse, LSE)?,
        bias: None,
        mask: None,
        sequences: Sequences::default(),
        grad_o: Tensor::new(&x[3], SHAPE)?,
        grad_q: TensorMut::new(grad_q, SHAPE)?,
        grad_k: TensorMut::new(grad_k, SHAPE)?,
        grad_v: TensorMut::new(grad_v, SHAPE)?,
    };
    plan.backward(run, &mut Workspace::default())?;
    Ok(grads)
}

#[test]
fn both_passes_are_those_of_the_definition() -> Result<(), Error> {
    let x: Vec<_> = (0..4).map(|i| numbers(i, COUNT)).collect();
    let mut results = Vec::new();
    for backend in [Backend::Reference, Backend::Cpu] {
        let (o, lse) = forward(&Plan::new(&problem(), Pass::Forward, target(backend))?, &x)?;
        let grads = backward(&Plan::new(&problem(), Pass::Backward, target(backend))?, &x, &o, &lse)?;
        results.push((o, lse, grads));
    }
    let [(o, lse, grads), (o_cpu, lse_cpu, grads_cpu)] = &results[..] else { unreachable!() };
    assert!(distance(o, o_cpu) < 1e-5);
    assert!(distance(lse, lse_cpu) < 1e-5);
    for (a, b) in grads.iter().zip(grads_cpu) {
        assert!(distance(a, b) < 1e-5);
        assert!(a.iter().any(|x| x.abs() > 0.01), "the gradients are not all nothing");
    }
    Ok(())
}

#[test]
fn the_diagonal_lies_at_any_key() -> Result<(), Error> {
    let x: Vec<_> = (0..4).map(|i| numbers(i, COUNT)).collect();
    let of = |align| {
        let problem = Problem { band: Band::causal(align), ..problem() };
        forward(&Plan::new(&problem, Pass::Forward, target(Backend::Cpu))?, &x)
    };
    assert_eq!(of(Align::At(0))?, of(Align::BottomRight)?); // as many keys as queries
    assert!(distance(&of(Align::At(3))?.0, &of(Align::At(0))?.0) > 0.01);
    let (o, lse) = of(Align::At(-40))?;
    assert!(o.iter().all(|&x| x == 0.0) && lse.iter().all(|&x| x == f32::NEG_INFINITY));
    let why = of(Align::At(i32::MAX)).unwrap_err();
    assert!(why.why.contains("band.offset = 2147483647"), "{}", why.why);
    Ok(())
}

#[test]
fn a_plan_runs_in_many_threads_at_once() -> Result<(), Error> {
    let x: Vec<_> = (0..4).map(|i| numbers(i, COUNT)).collect();
    let plan = Plan::new(&problem(), Pass::Forward, target(Backend::Cpu))?;
    let expected = forward(&plan, &x)?;
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..4).map(|_| scope.spawn(|| forward(&plan, &x))).collect();
        for run in runs {
            assert_eq!(run.join().unwrap().unwrap(), expected);
        }
    });
    Ok(())
}

#[test]
fn sixteen_bits_and_a_plan_that_tells_of_itself() -> Result<(), Error> {
    let plan = Plan::new(&Problem::new(DType::Bf16, [1, 8, 1, 8]), Pass::Forward, target(Backend::Cpu))?;
    assert!(plan.describe().contains("cpu"), "{}", plan.describe());
    assert!(plan.explain().lines().count() > 3);
    let (x, mut o) = (vec![Bf16(0x3FC0); 64], vec![Bf16(0xFFFF); 64]); // 1.5, and NaN
    let tensor = Tensor::new(&x, [1, 8, 1, 8])?;
    let o_view = TensorMut::new(&mut o, [1, 8, 1, 8])?;
    plan.forward(Forward::new(tensor, tensor, tensor, o_view), &mut Workspace::default())?;
    assert_eq!(o, x);
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused_with_words() {
    let x: Vec<_> = (0..4).map(|i| numbers(i, COUNT)).collect();
    let why = Tensor::new(&x[0][1..], SHAPE).err().unwrap();
    assert_eq!(why.to_string(), "a slice of 4223 elements is no tensor of shape [2, 33, 4, 16]");
    assert!(Tensor::new(&x[0], [usize::MAX, 2, 1, 1]).is_err());

    let uncertain = Problem { band: Band { right: Some(0), ..Band::full() }, ..problem() };
    let why = Plan::new(&uncertain, Pass::Forward, target(Backend::Cpu)).unwrap_err();
    assert_eq!(why.kind, Kind::Invalid);
    assert!(why.why.contains("align"), "{why}");

    for (zero, name) in [
        (Problem { scale: Some(0.0), ..problem() }, "scale"),
        (Problem { softcap: Some(-0.0), ..problem() }, "softcap"),
    ] {
        let why = Plan::new(&zero, Pass::Forward, target(Backend::Cpu)).unwrap_err();
        assert_eq!(why.kind, Kind::Invalid);
        assert!(why.why.starts_with(name), "{why}");
    }

    let other = Problem { queries: 32, keys: 32, ..problem() };
    let plan = Plan::new(&other, Pass::Forward, target(Backend::Cpu)).unwrap();
    let why = forward(&plan, &x).unwrap_err();
    assert_eq!(why.kind, Kind::Invalid);
    assert!(why.why.contains("33"), "{why}");

    let backward_plan = Plan::new(&problem(), Pass::Backward, target(Backend::Cpu)).unwrap();
    let why = forward(&backward_plan, &x).unwrap_err();
    assert_eq!(why.to_string(), "a plan of the pass Backward was run as Forward");
}

/// Sequences of 2 and 3 tokens in one tensor, and the same two as parts of padded tensors.
#[test]
fn packed_and_padded_sequences_are_those_alone() -> Result<(), Error> {
    let (heads, d) = (2, 8);
    let [q, k, v]: [Vec<f32>; 3] = [0, 1, 2].map(|i| numbers(i, 5 * heads * d));
    let run = |problem: &Problem, q: &[f32], k: &[f32], v: &[f32], sequences: Sequences| -> Result<Vec<f32>, Error> {
        let shape = if problem.packed {
            [1, q.len() / (heads * d), heads, d]
        } else {
            [problem.batch, problem.queries, heads, d]
        };
        let mut o = vec![0.0_f32; q.len()];
        let tensor = |x| Tensor::new(x, shape);
        let run =
            Forward { sequences, ..Forward::new(tensor(q)?, tensor(k)?, tensor(v)?, TensorMut::new(&mut o, shape)?) };
        Plan::new(problem, Pass::Forward, target(Backend::Cpu))?.forward(run, &mut Workspace::default())?;
        Ok(o)
    };
    let cut = 2 * heads * d;
    let mut expected = Vec::new();
    for (s, rows) in [(2, 0..cut), (3, cut..5 * heads * d)] {
        let alone = Problem::new(DType::F32, [1, s, heads, d]);
        expected.extend(run(&alone, &q[rows.clone()], &k[rows.clone()], &v[rows], Sequences::default())?);
    }
    let problem = Problem { packed: true, ..Problem::new(DType::F32, [2, 3, heads, d]) };
    let starts = [0, 2, 5];
    let packed = |starts: &[i32]| {
        let starts = Some(Lengths::new(starts));
        run(&problem, &q, &k, &v, Sequences { cu_seqlens_q: starts, cu_seqlens_k: starts, ..Sequences::default() })
    };
    assert!(distance(&packed(&starts)?, &expected) < 1e-6);
    assert_eq!(packed(&[0, 2]).unwrap_err().why, "cu_seqlens_q has 2 numbers; it must have 3");
    for bad in [[0, 2, 6], [0, 3, 2], [1, 2, 5]] {
        let why = packed(&bad).unwrap_err();
        assert!(why.kind == Kind::Invalid && why.why.contains("cu_seqlens_q"), "{why}");
    }
    assert!(run(&problem, &q, &k, &v, Sequences::default()).unwrap_err().why.contains("cu_seqlens"));

    // Two sequences of 3 tokens, of which 2 and 3 are used; the first row of the second has no keys before it.
    let pad = |x: &[f32]| [&x[..cut], &numbers(9, heads * d), &x[cut..]].concat();
    let padded = Problem { used_q: true, used_k: true, first_k: true, ..Problem::new(DType::F32, [2, 3, heads, d]) };
    let lengths = |used: &[i32], first: &[i32]| {
        let (used, first_k) = (Some(Lengths::new(used)), Some(Lengths::new(first)));
        run(
            &padded,
            &pad(&q),
            &pad(&k),
            &pad(&v),
            Sequences { used_q: used, used_k: used, first_k, ..Sequences::default() },
        )
    };
    let o = lengths(&[2, 3], &[0, 0])?;
    assert!(distance(&[&o[..cut], &o[3 * heads * d..]].concat(), &expected) < 1e-6);
    assert!(lengths(&[2, 4], &[0, 0]).unwrap_err().why.contains("used_q"), "it is longer than the tensor");
    assert!(lengths(&[2, 3], &[0, -1]).unwrap_err().why.contains("first_k"));
    assert_eq!(lengths(&[2], &[0, 0]).unwrap_err().why, "used_q has 1 numbers; it must have 2");
    Ok(())
}

#[test]
fn memory_that_is_no_slice_and_strides() -> Result<(), Error> {
    let x: Vec<_> = (0..4).map(|i| numbers(i, COUNT)).collect();
    let plan = Plan::new(&problem(), Pass::Forward, target(Backend::Cpu))?;
    let (expected, _) = forward(&plan, &x)?;
    // Heads first: (b, h, s, d) in memory, seen as (b, s, h, d).
    let [b, s, h, d] = SHAPE;
    let at = |i: usize| (((i / (s * h * d)) * h + i / d % h) * s + i / (h * d) % s) * d + i % d;
    let turned = |x: &[f32]| {
        let mut to = vec![0.0_f32; COUNT];
        x.iter().enumerate().for_each(|(i, &value)| to[at(i)] = value);
        to
    };
    let (shape, stride) = (SHAPE.map(|n| n as i64), [(h * s * d) as i64, d as i64, (s * d) as i64, 1]);
    let inputs: Vec<_> = x.iter().map(|x| turned(x)).collect();
    let (mut o, mut lse) = (vec![f32::NAN; COUNT], vec![f32::NAN; b * h * s]);
    // SAFETY: the vectors have as many numbers as shape and strides reach, and live until the run is done.
    let tensor = |x: &Vec<f32>| unsafe { Tensor::from_raw(x.as_ptr().cast(), DType::F32, shape, stride) };
    let o_view = unsafe { TensorMut::from_raw(o.as_mut_ptr().cast(), DType::F32, shape, stride) };
    let run = Forward::new(tensor(&inputs[0]), tensor(&inputs[1]), tensor(&inputs[2]), o_view);
    plan.forward(Forward { lse: Some(TensorMut::new(&mut lse, LSE)?), ..run }, &mut Workspace::default())?;
    assert_eq!(o, turned(&expected));
    Ok(())
}

/// A plan for a GPU can be made anywhere, where the library has its kernels; it is never run on slices.
#[test]
fn a_plan_of_a_gpu_refuses_the_host_and_the_other_way_round() -> Result<(), Error> {
    let x: Vec<_> = (0..4).map(|i| numbers(i, COUNT)).collect();
    match Plan::new(&problem(), Pass::Forward, target(Backend::Sm80)) {
        Ok(plan) => {
            let why = forward(&plan, &x).unwrap_err();
            assert!(why.why.contains("from_raw"), "{why}");
        }
        Err(why) => assert!(why.kind == Kind::Unsupported || why.kind == Kind::Device, "{why}"),
    }
    let plan = Plan::new(&problem(), Pass::Forward, target(Backend::Cpu))?;
    let (mut o, mut lse) = (vec![f32::NAN; COUNT], vec![f32::NAN; 2 * 4 * 33]);
    let tensor = |i: usize| Tensor::new(&x[i], SHAPE);
    let run = Forward::new(tensor(0)?, tensor(1)?, tensor(2)?, TensorMut::new(&mut o, SHAPE)?);
    let run = Forward { lse: Some(TensorMut::new(&mut lse, LSE)?), ..run };
    // SAFETY: no byte is promised.
    let mut device = unsafe { Workspace::from_raw(std::ptr::null_mut(), 0, std::ptr::null_mut()) };
    let why = plan.forward(run, &mut device).unwrap_err();
    assert_eq!(why.why, "a plan of the backend Cpu needs a Workspace of default()");
    Ok(())
}
