"""`python -m holdfast_bench`, with `src`, `bench` and `chaos` on the path."""

from holdfast.cli.checkout import enter
from holdfast_bench.commands import app

if __name__ == "__main__":
    enter()
    app(prog_name="holdfast_bench")
