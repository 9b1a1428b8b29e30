"""Signature lines of several languages."""

import pytest

from workers.renderers.signatures import signatures


@pytest.mark.parametrize(
    ("path", "text", "found"),
    [
        ("a.py", "import x\nclass A(B):\n    async def f(self):\ndefault = 1", ["class A(B):", "async def f(self):"]),
        ("a.py", "    12\tdef f(a):\n    13\t    pass", ["def f(a):"]),
        ("a.go", "package a\nfunc (s *S) Run() error {\ntype S struct {", [
            "func (s *S) Run() error {", "type S struct {"]),
        ("a.ts", "export function f(a) {\nexport const g = (x) => x\nclass C {", [
            "export function f(a) {", "export const g = (x) => x", "class C {"]),
        ("A.java", "public class A {\n  private static int f(int a) {\n    return g(a);", [
            "public class A {", "private static int f(int a) {"]),
        ("a.rs", "pub fn f() {\nimpl T for S {\nlet x = fn_name();", ["pub fn f() {", "impl T for S {"]),
        ("a.c", "struct node {\nstatic int f(int a)\n  return f(a);\n", ["struct node {", "static int f(int a)"]),
        ("a.c", "int main(int a)\r\n{\r\n  // no semicolon\r\nint other(int b)\r\n", [
            "int main(int a)", "int other(int b)"]),
        ("a.c", "int f(int a,\n      int b)\n{\n  g(a);", ["int f(int a,"]),
        ("a.ts", "const f = (\n  x,\n) => x\nconst g = (y) => y", ["const g = (y) => y"]),
        ("A.cs", "public static List<A, B> F(int a) {\npublic\nclass B {\npublic A(int a) {", [
            "public static List<A, B> F(int a) {", "class B {"]),
        ("a.rb", "module M\n  def go\n", ["module M", "def go"]),
        ("a.php", "final class A {\n  public function f($x) {", ["final class A {", "public function f($x) {"]),
        ("a.txt", "def f():", []),
    ],
)  # fmt: skip
def test_signatures_by_extension(path: str, text: str, found: list[str]) -> None:
    """One line each, without indentation and line number; unknown extensions have none."""
    assert signatures(text, path, top_level_only=False) == found


def test_top_level_only() -> None:
    """Methods are left out of dedup stubs (methods 1A.6)."""
    text = "class A:\n    def f(self):\n7:def g():"
    assert signatures(text, "a.py", top_level_only=True) == ["class A:", "def g():"]
