package data

import (
	"context"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"berth/cli/app"
	"berth/cli/term"
	"berth/client"
	"berth/proto"
)

// SkillsCommand returns `berth skills`.
func SkillsCommand(a *app.App) *cobra.Command {
	skills := skillNoun(a)
	return app.NewGroup(&cobra.Command{Use: "skills", Aliases: []string{"skill"}, Short: "Skills: directories with a " +
		"SKILL.md, for containers",
		Long: `Skills: directories with a SKILL.md, which describes the skill, and the files that the skill needs.

A request to /v1/messages names the skills for its container. They are in its directory /skills/NAME/. The list has the
skills that you add and those that the daemon provides (serve --skills).`},
		skills.ListCommand(a), skillsAddCommand(a), skillsShowCommand(a), skills.RemoveCommand(a))
}

func skillsAddCommand(a *app.App) *cobra.Command {
	var to, name string
	cmd := &cobra.Command{
		Use: "add [flags] DIR", Short: "Store a skill, or a new version of one, and print its ID",
		Args:    app.ArgCount(1, 1),
		Long:    `Store a skill and print its ID. DIR is a directory with a SKILL.md at its top, or a zip archive of one.`,
		Example: "  berth skills add ./pdf-forms\n  berth skills add --to skill_… ./pdf-forms",
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			files, err := skillFiles(args[0])
			if err != nil {
				return err
			}
			if to != "" {
				v, err := c.CreateSkillVersion(ctx, to, files)
				return a.PrintResult(v, v.ID, err)
			}
			k, err := c.CreateSkill(ctx, name, files)
			return a.PrintResult(k, k.ID, err)
		}),
	}
	cmd.Flags().StringVar(&to, "to", "", "ID of a skill; store a new version of it")
	cmd.Flags().StringVar(&name, "name", "", "display name (default: the name in SKILL.md)")
	cmd.MarkFlagsMutuallyExclusive("to", "name")
	_ = cmd.RegisterFlagCompletionFunc("to", completeSkills(a))
	return a.AddFormatFlags(cmd)
}

// skillFiles returns the files of a directory with their paths in the skill. Links and special files are errors; it
// does not skip them.
func skillFiles(dir string) (list []client.SkillFile, err error) {
	top, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	fi, err := os.Stat(top)
	if err != nil {
		return nil, err
	}
	opener := func(file string) func() (io.ReadCloser, error) {
		return func() (io.ReadCloser, error) { return os.Open(file) }
	}
	if !fi.IsDir() {
		if !strings.HasSuffix(strings.ToLower(top), ".zip") {
			return nil, proto.Errorf(proto.InvalidArgument, "", dir, "%s is neither a directory nor a zip archive; "+
				"give a skill's directory", dir)
		}
		return []client.SkillFile{{Path: filepath.Base(top), Open: opener(top)}}, nil
	}
	err = filepath.WalkDir(top, func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rest, err := filepath.Rel(top, file)
		if err != nil {
			return err
		}
		if !e.Type().IsRegular() {
			return proto.Errorf(proto.InvalidArgument, "", rest, "%s is a link or a special file; a skill has "+
				"ordinary files alone", rest)
		}
		list = append(list, client.SkillFile{Path: path.Join(filepath.Base(top), filepath.ToSlash(rest)),
			Open: opener(file)})
		return nil
	})
	return list, err
}

func skillsShowCommand(a *app.App) *cobra.Command {
	var content string
	cmd := &cobra.Command{
		Use: "show [flags] SKILL", Short: "List the versions of a skill, newest first, or download one",
		Args: app.ArgCount(1, 1), ValidArgsFunction: completeSkills(a),
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			if content != "" {
				return skillContent(ctx, a, c, args[0], content)
			}
			list, err := c.SkillVersions(ctx, args[0])
			if err != nil {
				return err
			}
			return term.PrintList(&a.Output, list, term.Columns[client.SkillVersion]{
				Head: []string{"VERSION", "NAME", "CREATED", "DESCRIPTION"},
				Row: func(v client.SkillVersion) []string {
					return []string{v.ID, v.Name, term.Ago(v.CreatedAt.Time), term.Short(v.Description, 60)}
				}})
		}),
	}
	cmd.Flags().StringVar(&content, "content", "", "write the files of this version, or of \"latest\", to standard "+
		"output as a zip archive")
	return a.AddListFlags(cmd)
}

func skillContent(ctx context.Context, a *app.App, c *client.Client, id, version string) error {
	d, err := c.SkillContent(ctx, id, version)
	if err != nil {
		return err
	}
	defer d.Close()
	_, err = io.Copy(a.Stdout, d)
	return err
}

// completeSkills suggests skills by ID.
func completeSkills(a *app.App) cobra.CompletionFunc {
	return app.CompleteList(a, (*client.Client).Skills, func(k client.Skill) cobra.Completion {
		return app.Suggestion(k.ID, k.DisplayName)
	})
}

// skillNoun returns the commands that list and remove skills.
func skillNoun(a *app.App) app.Noun[client.Skill] {
	return app.Noun[client.Skill]{
		ListShort: "List skills, newest first, and then those that the daemon provides",
		List:      (*client.Client).Skills, Quiet: "print IDs only",
		Columns: term.Columns[client.Skill]{
			Head: []string{"ID", "NAME", "SOURCE", "LATEST VERSION", "CHANGED"},
			Row: func(k client.Skill) []string {
				return []string{k.ID, term.Short(k.DisplayName, 40), k.Source.Type, k.LatestVersionID,
					term.Ago(k.UpdatedAt.Time)}
			},
		},
		Argument: "SKILL", RemoveShort: "Remove skills with their versions", Complete: completeSkills(a),
		RemoveLong: "Remove skills with all versions. A container that uses a skill keeps it until the container " +
			"stops.",
		Remove: (*client.Client).DeleteSkill,
	}
}
