"""The command `ballast` of a wheel: the program that lies beside this file."""
import os
import sys


def main():
    """Becomes the program."""
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "ballast")
    os.execv(program, ["ballast", *sys.argv[1:]])
