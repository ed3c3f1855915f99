package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const docsFile = "../../docs/cli.md"

var update = flag.Bool("update", false, "write docs/cli.md")

// documented is every command, in the order of the help, but the ones that are hidden and cobra's own.
func documented(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" && sub.Name() != "completion" {
			all = append(all, documented(sub)...)
		}
	}
	return all
}

func newRoot() *cobra.Command {
	a := &app{stdout: io.Discard, stderr: io.Discard}
	root := a.root()
	root.InitDefaultCompletionCmd()
	return root
}

// render is docs/cli.md as the help texts make it.
func render(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString("# The command tenure\n\n")
	b.WriteString("Made from the help texts by `go test ./cmd/tenure -run TestDocs -update`; a test fails when it is old.\n")
	b.WriteString("`tenure completion --help` says how a shell completes commands, flags and names.\n")
	for _, cmd := range documented(root) {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n```\n%s\n```\n", cmd.CommandPath(), strings.TrimSpace(cmd.Short), cmd.UseLine())
		fmt.Fprintf(&b, "\n```text\n%s\n```\n", strings.TrimSpace(cmd.Long))
		fmt.Fprintf(&b, "\nExamples:\n\n```sh\n%s\n```\n", dedent(cmd.Example))
		if flags := flagTable(cmd); flags != "" {
			b.WriteString("\n" + flags)
		}
	}
	return b.String()
}

func flagTable(cmd *cobra.Command) string {
	var b strings.Builder
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		kind, usage := pflag.UnquoteUsage(f)
		name := strings.TrimSpace("--" + f.Name + " " + kind)
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", name, defaultOf(f), strings.ReplaceAll(usage, "|", "\\|"))
	})
	if b.Len() == 0 {
		return ""
	}
	return "| flag | default | |\n|---|---|---|\n" + b.String()
}

func defaultOf(f *pflag.Flag) string {
	if f.DefValue == "" || f.DefValue == "false" || f.DefValue == "0s" {
		return ""
	}
	return "`" + f.DefValue + "`"
}

func dedent(text string) string {
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, "  ")
	}
	return strings.Join(lines, "\n")
}

// TestDocs holds docs/cli.md to the help texts.
func TestDocs(t *testing.T) {
	want := render(newRoot())
	if *update {
		if err := os.WriteFile(docsFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(docsFile)
	if err != nil || string(got) != want {
		t.Errorf("docs/cli.md is not what the help texts say (%v); run: go test ./cmd/tenure -run TestDocs -update", err)
	}
}

// TestHelpIsComplete: each command says what it does, at length and by example, and each flag what it is for.
func TestHelpIsComplete(t *testing.T) {
	for _, cmd := range documented(newRoot()) {
		if cmd.Short == "" || cmd.Long == "" || !strings.Contains(cmd.Example, "tenure") {
			t.Errorf("%q lacks a short or long text or an example", cmd.CommandPath())
		}
		if cmd.RunE == nil {
			t.Errorf("%q has no RunE", cmd.CommandPath())
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%q: --%s is not explained", cmd.CommandPath(), f.Name)
			}
		})
		for _, line := range strings.Split(cmd.Long, "\n") {
			if len(line) > 130 {
				t.Errorf("%q: a line of its help is %d characters long", cmd.CommandPath(), len(line))
			}
		}
	}
}
