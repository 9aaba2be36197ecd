//! Attention through the crate: against the definition, from many threads, and with what must be refused.
use falchion::*;

const SHAPE: [usize; 4] = [2, 33, 4, 16];
const LSE: [usize; 4] = [2, 4, 33, 1];
const COUNT: usize = 2 * 33 * 4 * 16;

/// The same numbers between -1 and 1 each time.
fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn problem() -> Problem {
    Problem { lse: true, band: Band::causal(Align::BottomRight), ..Problem::new(DType::F32, SHAPE) }
}

fn target(backend: Backend) -> Target {
    Target { backend, threads: Some(2) }
}

fn forward(plan: &Plan, x: &[Vec<f32>]) -> Result<(Vec<f32>, Vec<f32>), Error> {
    let (mut o, mut lse) = (vec![f32::NAN; COUNT], vec![f32::NAN; 2 * 4 * 33]);
    let run = Forward {
        q: Tensor::new(&x[0], SHAPE)?,
        k: Tensor::new(&x[1], SHAPE)?,
        v: Tensor::new(&x[2], SHAPE)?,
        o: TensorMut::new(&mut o, SHAPE)?,
        lse: Some(TensorMut::new(&mut lse, LSE)?),
        bias: None,
        mask: None,
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
        grad_o: Tensor::new(&x[3], SHAPE)?,
        grad_q: TensorMut::new(grad_q, SHAPE)?,
        grad_k: TensorMut::new(grad_k, SHAPE)?,
        grad_v: TensorMut::new(grad_v, SHAPE)?,
    };
    plan.backward(run, &mut Workspace::default())?;
    Ok(grads)
}

fn distance(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| if (a - b).is_nan() { f32::INFINITY } else { (a - b).abs() }).fold(0.0, f32::max)
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
    let run = Forward { q: tensor, k: tensor, v: tensor, o: o_view, lse: None, bias: None, mask: None };
    plan.forward(run, &mut Workspace::default())?;
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
