//! Linear attention, matrix products and norms through the crate, against their definitions written out.
mod support;

use falchion::*;
use support::{distance, numbers};

fn target(backend: Backend) -> Target {
    Target { backend, threads: Some(2), ..Target::default() }
}

const BACKENDS: [Backend; 2] = [Backend::Reference, Backend::Cpu];

#[test]
fn a_gemm_with_all_that_follows_it() -> Result<(), Error> {
    let [m, n, k] = [7, 5, 19];
    let (a, b, c) = (numbers(0, m * k), numbers(1, n * k), numbers(2, m * n));
    let (bias_n, bias_m, residual) = (numbers(3, n), numbers(4, m), numbers(5, m * n));
    let expected: Vec<f32> = (0..m * n)
        .map(|i| {
            let (row, column) = (i / n, i % n);
            let dot: f64 = (0..k).map(|j| f64::from(a[row * k + j]) * f64::from(b[column * k + j])).sum();
            let z = 0.5 * dot - 2.0 * f64::from(c[i]) + f64::from(bias_n[column]) + f64::from(bias_m[row]);
            (z / (1.0 + (-z).exp()) + f64::from(residual[i])) as f32
        })
        .collect();
    let problem = GemmProblem {
        alpha: 0.5,
        beta: -2.0,
        activation: Activation::Silu,
        bias_n: true,
        bias_m: true,
        residual: true,
        ..GemmProblem::new(DType::F32, [m, n, k])
    };
    for backend in BACKENDS {
        let plan = GemmPlan::new(&problem, target(backend))?;
        assert!(plan.describe().contains("gemm") && plan.backend() == backend, "{}", plan.describe());
        let mut d = vec![f32::NAN; m * n];
        let run = Gemm {
            c: Some(Tensor::new(&c, [1, m, 1, n])?),
            residual: Some(Tensor::new(&residual, [1, m, 1, n])?),
            bias_n: Some(Tensor::new(&bias_n, [1, 1, 1, n])?),
            bias_m: Some(Tensor::new(&bias_m, [1, m, 1, 1])?),
            ..Gemm::new(
                Tensor::new(&a, [1, m, 1, k])?,
                Tensor::new(&b, [1, n, 1, k])?,
                TensorMut::new(&mut d, [1, m, 1, n])?,
            )
        };
        plan.run(run, &mut Workspace::default())?;
        assert!(distance(&d, &expected) < 1e-5, "{backend:?}");
    }
    let plan = GemmPlan::new(&problem, target(Backend::Cpu))?;
    let mut d = vec![0.0_f32; m * n];
    let (a, b) = (Tensor::new(&a, [1, m, 1, k])?, Tensor::new(&b, [1, n, 1, k])?);
    let why = plan.run(Gemm::new(a, b, TensorMut::new(&mut d, [1, m, 1, n])?), &mut Workspace::default());
    assert_eq!(why.unwrap_err().kind, Kind::Invalid, "c, biases and residual are missing");
    Ok(())
}

#[test]
fn a_gemm_of_bytes() -> Result<(), Error> {
    let [m, n, k] = [3, 4, 33];
    let byte = |x: f32| (x * 127.0) as i8;
    let a: Vec<i8> = numbers(0, m * k).into_iter().map(byte).collect();
    let b: Vec<i8> = numbers(1, n * k).into_iter().map(byte).collect();
    let dot = |i: usize, j: usize| (0..k).map(|x| i32::from(a[i * k + x]) * i32::from(b[j * k + x])).sum::<i32>();
    let problem = GemmProblem { dtype_d: Some(DType::I32), ..GemmProblem::new(DType::I8, [m, n, k]) };
    for backend in BACKENDS {
        let mut d = vec![i32::MIN; m * n];
        let run = Gemm::new(
            Tensor::new(&a, [1, m, 1, k])?,
            Tensor::new(&b, [1, n, 1, k])?,
            TensorMut::new(&mut d, [1, m, 1, n])?,
        );
        GemmPlan::new(&problem, target(backend))?.run(run, &mut Workspace::default())?;
        assert!((0..m * n).all(|i| d[i] == dot(i / n, i % n)), "{backend:?}");
    }
    Ok(())
}

#[test]
fn both_norms_with_a_residual() -> Result<(), Error> {
    let [rows, d] = [6, 40];
    let (x, residual) = (numbers(0, rows * d), numbers(1, rows * d));
    let (weight, bias) = (numbers(2, d), numbers(3, d));
    for kind in [NormKind::Layer, NormKind::Rms] {
        let sum: Vec<f32> = x.iter().zip(&residual).map(|(x, r)| x + r).collect();
        let mut expected = Vec::new();
        for row in sum.chunks(d) {
            let mean = if kind == NormKind::Layer { row.iter().sum::<f32>() / d as f32 } else { 0.0 };
            let rstd = (row.iter().map(|v| (v - mean).powi(2)).sum::<f32>() / d as f32 + 1e-5).sqrt().recip();
            expected.extend((0..d).map(|j| (row[j] - mean) * rstd * weight[j] + bias[j]));
        }
        let problem = NormProblem {
            weight: true,
            bias: true,
            residual: true,
            residual_out: true,
            ..NormProblem::new(kind, DType::F32, [rows, d])
        };
        for backend in BACKENDS {
            let (mut y, mut out) = (vec![f32::NAN; rows * d], vec![f32::NAN; rows * d]);
            let shape = [1, rows, 1, d];
            let run = Norm {
                weight: Some(Tensor::new(&weight, [1, 1, 1, d])?),
                bias: Some(Tensor::new(&bias, [1, 1, 1, d])?),
                residual: Some(Tensor::new(&residual, shape)?),
                residual_out: Some(TensorMut::new(&mut out, shape)?),
                ..Norm::new(Tensor::new(&x, shape)?, TensorMut::new(&mut y, shape)?)
            };
            NormPlan::new(&problem, target(backend))?.run(run, &mut Workspace::default())?;
            assert!(distance(&y, &expected) < 1e-5 && distance(&out, &sum) < 1e-6, "{kind:?} on {backend:?}");
        }
    }
    let why = NormPlan::new(&NormProblem::new(NormKind::Rms, DType::I8, [2, 3]), Target::default()).unwrap_err();
    assert!(why.why.contains("dtype"), "{why}");
    Ok(())
}

/// Against central differences of the sum of grad_y y.
#[test]
fn the_gradients_of_both_norms() -> Result<(), Error> {
    let [rows, d] = [3, 12];
    let (x, weight, grad_y) = (numbers(0, rows * d), numbers(2, d), numbers(3, rows * d));
    for kind in [NormKind::Layer, NormKind::Rms] {
        let loss = |x: &[f32]| -> f64 {
            let of_row = |(i, row): (usize, &[f32])| {
                let v: Vec<f64> = row.iter().map(|&v| v.into()).collect();
                let mean = if kind == NormKind::Layer { v.iter().sum::<f64>() / d as f64 } else { 0.0 };
                let rstd = (v.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / d as f64 + 1e-5).sqrt().recip();
                (0..d).map(|j| f64::from(grad_y[i * d + j] * weight[j]) * (v[j] - mean) * rstd).sum::<f64>()
            };
            x.chunks(d).enumerate().map(of_row).sum()
        };
        let moved = |i: usize, by: f32| {
            let mut other = x.clone();
            other[i] += by;
            loss(&other)
        };
        let step = 1.0 / 1024.0;
        let expected: Vec<f32> =
            (0..x.len()).map(|i| ((moved(i, step) - moved(i, -step)) / f64::from(2.0 * step)) as f32).collect();
        let problem = NormProblem { weight: true, bias: true, ..NormProblem::new(kind, DType::F32, [rows, d]) };
        let bias: Vec<f32> = (0..d).map(|j| (0..rows).map(|i| grad_y[i * d + j]).sum()).collect();
        for backend in BACKENDS {
            let (mut grad_x, mut grad_weight, mut grad_bias) =
                (vec![0.0; rows * d], vec![f32::NAN; d], vec![f32::NAN; d]);
            let (shape, row) = ([1, rows, 1, d], [1, 1, 1, d]);
            let run = NormBackward {
                grad_y: Tensor::new(&grad_y, shape)?,
                x: Tensor::new(&x, shape)?,
                weight: Some(Tensor::new(&weight, row)?),
                grad_residual_out: None,
                grad_x: Some(TensorMut::new(&mut grad_x, shape)?),
                grad_weight: Some(TensorMut::new(&mut grad_weight, row)?),
                grad_bias: Some(TensorMut::new(&mut grad_bias, row)?),
            };
            NormPlan::backward(&problem, target(backend))?.run_backward(run, &mut Workspace::default())?;
            assert!(distance(&grad_x, &expected) < 1e-2, "{kind:?} on {backend:?}");
            assert!(distance(&grad_bias, &bias) < 1e-5 && grad_weight.iter().all(|x| x.is_finite()));
        }
    }
    Ok(())
}

const LINEAR: LinearProblem = LinearProblem {
    dtype: DType::F32,
    batch: 1,
    tokens: 9,
    heads_qk: 1,
    heads_v: 1,
    d_qk: 4,
    d_v: 6,
    scale: Some(0.5),
    feature_map: FeatureMap::Identity,
    decay: Decay::Token,
    normalise: false,
    eps: 1e-6,
    reverse: false,
    packed: false,
    initial_state: true,
    final_state: true,
};

/// The recurrence of one head from a state on: o, and the state becomes the last one.
fn recurrence(q: &[f32], k: &[f32], v: &[f32], decay: &[f32], state: &mut [f32]) -> Vec<f32> {
    let (d_qk, d_v) = (LINEAR.d_qk, LINEAR.d_v);
    let mut o = Vec::new();
    for t in 0..decay.len() {
        for i in 0..d_qk * d_v {
            state[i] = state[i] * decay[t].exp() + k[t * d_qk + i / d_v] * v[t * d_v + i % d_v];
        }
        o.extend((0..d_v).map(|j| 0.5 * (0..d_qk).map(|i| q[t * d_qk + i] * state[i * d_v + j]).sum::<f32>()));
    }
    o
}

#[test]
fn linear_attention_is_its_recurrence() -> Result<(), Error> {
    let (s, d_qk, d_v) = (LINEAR.tokens, LINEAR.d_qk, LINEAR.d_v);
    let (q, k, v) = (numbers(0, s * d_qk), numbers(1, s * d_qk), numbers(2, s * d_v));
    let decay: Vec<f32> = numbers(3, s).iter().map(|x| -x.abs()).collect();
    let initial = numbers(4, d_qk * d_v);
    let mut last = initial.clone();
    let expected = recurrence(&q, &k, &v, &decay, &mut last);
    for backend in BACKENDS {
        let (mut o, mut state) = (vec![f32::NAN; s * d_v], vec![f32::NAN; d_qk * d_v]);
        let run = LinearForward {
            decay: Some(Tensor::new(&decay, [1, s, 1, 1])?),
            initial_state: Some(Tensor::new(&initial, [1, 1, d_qk, d_v])?),
            final_state: Some(TensorMut::new(&mut state, [1, 1, d_qk, d_v])?),
            ..LinearForward::new(
                Tensor::new(&q, [1, s, 1, d_qk])?,
                Tensor::new(&k, [1, s, 1, d_qk])?,
                Tensor::new(&v, [1, s, 1, d_v])?,
                TensorMut::new(&mut o, [1, s, 1, d_v])?,
            )
        };
        LinearPlan::new(&LINEAR, Pass::Forward, target(backend))?.forward(run, &mut Workspace::default())?;
        assert!(distance(&o, &expected) < 1e-5 && distance(&state, &last) < 1e-5, "{backend:?}");
    }
    Ok(())
}

/// Packed sequences of 2 and 7 tokens are those alone, in both passes, and lengths that do not fit are refused.
#[test]
fn linear_attention_of_packed_sequences() -> Result<(), Error> {
    let (d_qk, d_v) = (LINEAR.d_qk, LINEAR.d_v);
    let (q, k, v) = (numbers(0, 9 * d_qk), numbers(1, 9 * d_qk), numbers(2, 9 * d_v));
    let plain = LinearProblem { decay: Decay::None, initial_state: false, final_state: false, ..LINEAR };
    let both = |problem: &LinearProblem, rows: std::ops::Range<usize>, starts: Option<&[i32]>| {
        let s = rows.len();
        let part = |x: &[f32], d: usize| x[rows.start * d..rows.end * d].to_vec();
        let (q, k, v) = (part(&q, d_qk), part(&k, d_qk), part(&v, d_v));
        let (shape, shape_v) = ([1, s, 1, d_qk], [1, s, 1, d_v]);
        let mut found = vec![vec![0.0; s * d_v], vec![0.0; s * d_qk], vec![0.0; s * d_qk], vec![0.0; s * d_v]];
        let [o, grad_q, grad_k, grad_v] = &mut found[..] else { unreachable!() };
        let cu_seqlens = starts.map(Lengths::new);
        let (q, k, v) = (Tensor::new(&q, shape)?, Tensor::new(&k, shape)?, Tensor::new(&v, shape_v)?);
        let run = LinearForward { cu_seqlens, ..LinearForward::new(q, k, v, TensorMut::new(o, shape_v)?) };
        let plan = LinearPlan::new(problem, Pass::Forward, target(Backend::Cpu))?;
        plan.forward(run, &mut Workspace::default())?;
        let o = Tensor::new(o, shape_v)?;
        let run = LinearBackward {
            q,
            k,
            v,
            o,
            decay: None,
            initial_state: None,
            initial_z: None,
            cu_seqlens,
            grad_o: o,
            grad_final_state: None,
            grad_final_z: None,
            grad_q: TensorMut::new(grad_q, shape)?,
            grad_k: TensorMut::new(grad_k, shape)?,
            grad_v: TensorMut::new(grad_v, shape_v)?,
            grad_decay: None,
            grad_initial_state: None,
            grad_initial_z: None,
        };
        let plan = LinearPlan::new(problem, Pass::Backward, target(Backend::Cpu))?;
        plan.backward(run, &mut Workspace::default())?;
        Ok::<_, Error>(found)
    };
    let alone = |rows: std::ops::Range<usize>| both(&LinearProblem { tokens: rows.len(), ..plain }, rows, None);
    let packed = LinearProblem { packed: true, batch: 2, tokens: 7, ..plain };
    let (first, second, together) = (alone(0..2)?, alone(2..9)?, both(&packed, 0..9, Some(&[0, 2, 9]))?);
    for i in 0..4 {
        assert!(distance(&[&first[i][..], &second[i][..]].concat(), &together[i]) < 1e-5, "result {i}");
        assert!(together[i].iter().any(|x| x.abs() > 0.01));
    }
    for bad in [&[0, 2, 10][..], &[0, 9, 2], &[0, 9]] {
        assert!(both(&packed, 0..9, Some(bad)).unwrap_err().why.contains("cu_seqlens"), "{bad:?}");
    }
    Ok(())
}
