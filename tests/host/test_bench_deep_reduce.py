"""DeepReduce's codecs, as the benchmark counts them, lose what they may lose and no more."""

import numpy as np

from benchmarks.rows.deep_reduce import bloom_positives, bloom_words, fit_polynomials


def test_the_filter_has_all_that_is_present_and_few_others():
    source = np.random.default_rng(1)
    elements, count, rate = 100_000, 1_000, 0.01
    places = np.sort(source.choice(elements, count, replace=False))
    words, taken = bloom_positives(places, elements, rate)
    assert words == bloom_words(count, rate)[0]
    assert np.isin(places, taken).all()
    assert 0.5 * rate * elements < len(taken) - count < 2 * rate * elements


def test_polynomials_give_values_back_at_their_places():
    values = np.random.default_rng(2).standard_normal(2_000).astype(np.float32)
    size, back = fit_polynomials(values)
    assert size < values.nbytes / 2
    assert np.linalg.norm(back - values) < 0.01 * np.linalg.norm(values)
    same = np.full(5, 3.0, np.float32)
    np.testing.assert_allclose(fit_polynomials(same)[1], same, rtol=1e-5)
