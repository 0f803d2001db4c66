package client_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"berth/client"
	"berth/proto"
)

// Create a container, put a file, run a command with live output, get a chart back, delete.
func ExampleSandbox() {
	ctx := context.Background()
	c, err := client.FromEnv()
	if err != nil {
		log.Fatal(err)
	}
	sandbox, err := c.NewSandbox(ctx, proto.CreateContainer{})
	if err != nil {
		log.Fatal(err)
	}
	defer sandbox.Delete(ctx)
	if err := sandbox.Files().Put(ctx, "data.csv", []byte("city,degrees\nOslo,4\nLima,19\n")); err != nil {
		log.Fatal(err)
	}
	res, err := sandbox.RunTo(ctx, proto.Cmd{Command: "wc -l <data.csv"}, os.Stdout, os.Stderr)
	if err != nil || !res.OK() {
		log.Fatal(err, res.Stderr)
	}
	chart, err := sandbox.RunCode(ctx, `
import pandas as pd
pd.read_csv("data.csv").plot(x="city", y="degrees", kind="bar")`)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("a PNG:", len(chart.PNG()) > 1000)
}

// A command in the background goes on without its client.
func ExampleSandbox_Start() {
	ctx := context.Background()
	c, err := client.FromEnv()
	if err != nil {
		log.Fatal(err)
	}
	sandbox, err := c.NewSandbox(ctx, proto.CreateContainer{Labels: map[string]string{"team": "a"}})
	if err != nil {
		log.Fatal(err)
	}
	defer sandbox.Delete(ctx)
	server, err := sandbox.Start(ctx, proto.Cmd{Argv: []string{"sleep", "60"}})
	if err != nil {
		log.Fatal(err)
	}
	if err := server.Kill(ctx); err != nil {
		log.Fatal(err)
	}
	res, err := server.Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.ReturnCode)
}
