"""L1: durations and booleans, value by value (A2, A3)."""

import random

import pytest

import mcp_lazy

US, MS, S, M, H = 10**3, 10**6, 10**9, 60 * 10**9, 3600 * 10**9
MAX = 2**63 - 1

ACCEPTED = [  # A2.1, A2.3
    ("0", 0), ("+0", 0), ("-0", 0), ("10ms", 10 * MS), ("1h2m3.5s", 3723500000000), ("1.5s", 1500 * MS),
    ("250us", 250 * US), ("250\u00b5s", 250 * US), ("250\u03bcs", 250 * US), ("-1.5s", -1500 * MS), ("+5s", 5 * S),
    (".5s", 500 * MS), ("1.s", S), ("1h1h", 7200 * S), ("1s1h", 3601 * S), ("00s", 0), ("0.0000000001s", 0),
    ("0.9ns", 0), ("9223372036854775807ns", MAX), ("-9223372036854775808ns", -MAX - 1),
    ("2562047h47m16.854775807s", MAX), ("5.6h", 20160 * S), ("0.3333333333333333333h", 1200 * S),
    ("39h9m14.425s", 140954425 * MS),
    # the same rules in other words
    ("0s", 0), ("-0s", 0), ("5s", 5 * S), ("1m", M), ("2h", 2 * H), ("1ns", 1), ("0.5us", 500), ("-.5s", -500 * MS),
    ("-1.s", -S), ("1ns1us1ms1s1m1h", 1 + US + MS + S + M + H), ("007ms", 7 * MS), ("1.0000s", S),
    ("0.100000000000000000000h", 360 * S), ("0.830103483285477580700h", 2988372539827), ("-2562047h47m16.854775808s", -MAX - 1),
]

REJECTED = [  # A2.2, A2.3
    "", "1", "1.5", "--5s", ".s", ".", "+", "-", "1..5s", "1e3s", " 1s", "1s ", "1S", "1d", "1h-2m", "1m0.5", "1ms2", "0x1s",
    "1_0s", "9223372036854775808ns", "2562047h47m16.854775808s", "3000000h", "100000000000000000000ns",
    # the same rules in other words
    "00", "+00", "s", "5 s", "5sec", "1H", "1Ms", "+-5s", "-+5s", "-9223372036854775809ns", "1m 5s", "5s\n", "\u0665s",
    "1\u00b5", "1.5.5s", "+.s", "1h2", "0.0", "\uff11s", "1\u00b2s", "nan", "inf", "9223372036854775807ns1ns", "1s\0",
]

PRINTED = [  # A2.5
    (0, "0s"), (1, "1ns"), (999, "999ns"), (US, "1\u00b5s"), (1100, "1.1\u00b5s"), (2200 * US, "2.2ms"), (100 * MS, "100ms"),
    (999999999, "999.999999ms"), (S, "1s"), (1500 * MS, "1.5s"), (3300 * MS, "3.3s"), (60 * S, "1m0s"), (H, "1h0m0s"),
    (2 * H, "2h0m0s"), (5 * H + 36 * M, "5h36m0s"), (4 * M + 5 * S, "4m5s"), (4 * M + 5001 * MS, "4m5.001s"),
    (5 * H + 6 * M + 7001 * MS, "5h6m7.001s"), (8 * M + 1, "8m0.000000001s"), (-1500 * MS, "-1.5s"), (-1, "-1ns"),
    (MAX, "2562047h47m16.854775807s"), (-MAX - 1, "-2562047h47m16.854775808s"), (1000001, "1.000001ms"), (10 * MS, "10ms"),
]


@pytest.mark.parametrize("text, value", ACCEPTED, ids=[repr(text) for text, _ in ACCEPTED])
def test_a2_3_durations_that_are_accepted(text, value):
    got = mcp_lazy.parse_duration(text)
    assert type(got) is int and got == value


@pytest.mark.parametrize("text", REJECTED, ids=[ascii(text) for text in REJECTED])
def test_a2_3_durations_that_are_rejected(text):
    with pytest.raises(ValueError):
        mcp_lazy.parse_duration(text)


@pytest.mark.parametrize("value, text", PRINTED, ids=[str(value) for value, _ in PRINTED])
def test_a2_5_durations_are_printed_as_go_prints_them(value, text):
    assert mcp_lazy.format_duration(value) == text


def test_a2_5_what_is_printed_can_be_read_again():
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(3000):
        value = rng.randrange(-MAX - 1, MAX + 1) >> rng.randrange(64)
        assert mcp_lazy.parse_duration(mcp_lazy.format_duration(value)) == value


def test_a2_4_digits_of_a_fraction_beyond_63_bits_are_ignored():
    assert mcp_lazy.parse_duration("0." + "1" * 400 + "s") == mcp_lazy.parse_duration("0." + "1" * 30 + "s")
    assert mcp_lazy.parse_duration("0." + "9" * 25 + "s") in (999999999, S)  # float rounding may reach the whole


def test_a2_4_a_very_long_number_is_an_error_not_a_hang():
    with pytest.raises(ValueError):
        mcp_lazy.parse_duration("9" * 100000 + "s")


@pytest.mark.parametrize("text", "1 t T true TRUE True".split())
def test_a3_1_true(text):
    assert mcp_lazy.parse_bool(text) is True


@pytest.mark.parametrize("text", "0 f F false FALSE False".split())
def test_a3_1_false(text):
    assert mcp_lazy.parse_bool(text) is False


@pytest.mark.parametrize("text", ["yes", "no", "on", "off", "tRUE", "fALSE", "", " true", "true ", "2", "-1", "01", "y", "n",
                                  "None", "true\n", "\u0661"])
def test_a3_1_neither(text):
    with pytest.raises(ValueError):
        mcp_lazy.parse_bool(text)
