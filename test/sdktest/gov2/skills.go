package main

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	anthropic "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
)

// skillFile is one file of a skill, with its path as its filename.
func skillFile(path, text string) io.Reader {
	return anthropic.File(strings.NewReader(text), path, "text/plain")
}

func manifest(description string) io.Reader {
	return skillFile("notes/SKILL.md", "---\nname: notes\ndescription: "+description+"\n---\n")
}

// skills makes a skill and its versions, finds them, and removes them again.
func skills() error {
	k, err := client.Skills.New(ctx, anthropic.SkillNewParams{Files: []io.Reader{manifest("One."),
		skillFile("notes/run.sh", "#!/bin/sh\n")}, DisplayName: anthropic.String("Notes of mine")})
	if err != nil {
		return err
	}
	if k.DisplayName != "Notes of mine" || k.Source.Type != "custom" || k.Type != "skill" ||
		!strings.HasPrefix(k.ID, "skill_") || !strings.HasPrefix(k.LatestVersionID, "skver_") {
		return errors.New(k.RawJSON())
	}
	v, err := client.Skills.Versions.New(ctx, k.ID, anthropic.SkillVersionNewParams{
		Files: []io.Reader{manifest("Two.")}})
	if err != nil {
		return err
	}
	if v.SkillID != k.ID || v.Name != "notes" || v.Description != "Two." || v.Type != "skill_version" {
		return errors.New(v.RawJSON())
	}
	latest, err := client.Skills.Versions.Get(ctx, "latest", anthropic.SkillVersionGetParams{SkillID: k.ID})
	if err != nil || latest.ID != v.ID {
		return fmt.Errorf("latest: %v, %v", latest, err)
	}
	if err := skillLists(k.ID, v.ID, k.LatestVersionID); err != nil {
		return err
	}
	if err := skillContent(k.ID, k.LatestVersionID); err != nil {
		return err
	}
	return skillEnds(k.ID, v.ID, k.LatestVersionID)
}

// skillLists walks both lists one by one.
func skillLists(id string, versions ...string) error {
	var walked []string
	pager := client.Skills.Versions.ListAutoPaging(ctx, id, anthropic.SkillVersionListParams{Limit: anthropic.Int(1)})
	for pager.Next() {
		walked = append(walked, pager.Current().ID)
	}
	if pager.Err() != nil || !slices.Equal(walked, versions) {
		return fmt.Errorf("versions %v, want %v: %v", walked, versions, pager.Err())
	}
	sources := map[string]string{}
	all := client.Skills.ListAutoPaging(ctx, anthropic.SkillListParams{Limit: anthropic.Int(1)})
	for all.Next() {
		sources[all.Current().ID] = string(all.Current().Source.Type)
	}
	if all.Err() != nil || sources[id] != "custom" || sources["xlsx"] != "anthropic" {
		return fmt.Errorf("skills %v: %v", sources, all.Err())
	}
	only, err := client.Skills.List(ctx, anthropic.SkillListParams{Source: anthropic.String("anthropic")})
	if err != nil || len(only.Data) != 1 || only.Data[0].ID != "xlsx" {
		return fmt.Errorf("provided skills: %v, %v", only, err)
	}
	return nil
}

func skillContent(id, version string) error {
	res, err := client.Beta.Skills.Versions.Download(ctx, version, anthropic.BetaSkillVersionDownloadParams{
		SkillID: id})
	if err != nil {
		return err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return err
	}
	if len(z.File) != 2 || z.File[0].Name != "notes/SKILL.md" || z.File[1].Mode() != 0o755 {
		return fmt.Errorf("archive of %v", z.File)
	}
	return nil
}

// skillEnds deletes a version, and the skill with its other one.
func skillEnds(id, newest, first string) error {
	gone, err := client.Skills.Versions.Delete(ctx, newest, anthropic.SkillVersionDeleteParams{SkillID: id})
	if err != nil || gone.ID != newest {
		return fmt.Errorf("deleting a version: %v, %v", gone, err)
	}
	k, err := client.Skills.Get(ctx, id, anthropic.SkillGetParams{})
	if err != nil || k.LatestVersionID != first {
		return fmt.Errorf("after that: %v, %v", k, err)
	}
	if _, err := client.Skills.Delete(ctx, id, anthropic.SkillDeleteParams{}, option.WithAPIKey("wrong")); err == nil {
		return errors.New("deleted with a wrong key")
	}
	end, err := client.Skills.Delete(ctx, id, anthropic.SkillDeleteParams{})
	if err != nil || end.ID != id || end.Type != "skill_deleted" {
		return fmt.Errorf("deleting: %v, %v", end, err)
	}
	_, err = client.Skills.Get(ctx, id, anthropic.SkillGetParams{})
	return want(err, 404, "")
}
