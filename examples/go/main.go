// Command go runs a command and a line of Python in a container of its own.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"berth/client"
	"berth/proto"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	c, err := client.FromEnv()
	if err != nil {
		return err
	}
	sandbox, err := c.NewSandbox(ctx, proto.CreateContainer{})
	if err != nil {
		return err
	}
	defer sandbox.Delete(ctx)
	if err := sandbox.Files().Put(ctx, "data.csv", []byte("city,degrees\nOslo,4\nLima,19\n")); err != nil {
		return err
	}
	if _, err := sandbox.RunTo(ctx, proto.Cmd{Command: "wc -l data.csv"}, os.Stdout, os.Stderr); err != nil {
		return err
	}
	result, err := sandbox.RunCode(ctx, "import pandas; int(pandas.read_csv('data.csv').degrees.sum())")
	if err != nil {
		return err
	}
	fmt.Println("sum of degrees:", result.Text())
	return nil
}
