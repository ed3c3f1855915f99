package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

func (a *app) epochCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "epoch",
		Short:   "repair an authority that was restored from a copy",
		Long:    "Repairs an authority whose store has lost grants that it made.",
		Example: "  tenure epoch raise",
		Args:    cobra.NoArgs,
		RunE:    needsCommand,
	}
	cmd.AddCommand(a.raiseCommand())
	return cmd
}

func (a *app) raiseCommand() *cobra.Command {
	var above string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "raise",
		Short: "make every later token greater than all that can have been issued",
		Long: `Makes every later token greater than --above, and greater than every token that this store can have issued by its own
clock, and lifts the stop that a token from the future put on a name. Nothing that is held is changed.

Run it after anything by which the store may have lost grants without noticing: content copied over the open file, a
virtual machine restored together with its memory or disk, a PostgreSQL branch that was promoted from a server whose clock
was ahead. Where an error names a token, give that one as --above. On PostgreSQL the role is a member of tenure_owner.`,
		Example: `  tenure epoch raise
  tenure epoch raise --above 70368744177664 --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var floor fence.Token
			if above != "" {
				parsed, err := fence.ParseToken(above)
				if err != nil {
					return usagef("--above %q: want a token, in decimal digits", above)
				}
				floor = parsed
			}
			s, _, err := a.open(cmd.Context(), openOptions{made: true})
			if err != nil {
				return err
			}
			defer a.close(cmd.Context(), s)
			raised, err := s.RaiseEpoch(cmd.Context(), floor)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(struct {
					Above fence.Token `json:"above"`
				}{raised})
			}
			fmt.Fprintf(a.stdout, "every later token is above %s\n", raised)
			return nil
		},
	}
	cmd.Flags().StringVar(&above, "above", "", "a token that later ones must exceed")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) versionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "say which version this is",
		Long:    "Prints the version, the commit that it was built from, and the Go release and platform that it was built for.",
		Example: "  tenure version --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := readVersion()
			if asJSON {
				return a.printJSON(v)
			}
			fmt.Fprintf(a.stdout, "tenure %s %s %s %s\n", v.Version, v.Commit, v.Go, v.Platform)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

type version struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// readVersion is what the linker recorded; a build without that is "(devel)", of an unknown commit.
func readVersion() version {
	v := version{Version: "(devel)", Commit: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	modified := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			v.Commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = "+changes"
		}
	}
	v.Commit += modified
	return v
}

// completeNames completes the names of a store that is there already: pressing a key makes no file.
func (a *app) completeNames(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	const none = cobra.ShellCompDirectiveNoFileComp
	l, err := a.env.locate(a.storeFlag)
	if err != nil || len(args) > 0 {
		return nil, none
	}
	if _, err := os.Stat(l.path); err != nil && l.path != "" {
		return nil, none
	}
	s, err := a.opener(cmd.Context(), l, openOptions{wait: closeWait})
	if err != nil {
		return nil, none
	}
	defer a.close(cmd.Context(), s)
	infos, err := s.List(cmd.Context(), lease.ListRequest{Prefix: prefix, Limit: 100})
	if err != nil {
		return nil, none
	}
	var names []string
	for _, i := range infos {
		names = append(names, i.Name)
	}
	return names, none
}
