// Creates a container, puts a file, runs a command, lists, meets an error and deletes, with types of openapi-typescript.
import createClient from 'openapi-fetch';
import type { components, paths } from './berth.js';

declare const process: { env: Record<string, string | undefined>; exitCode?: number };
declare const console: { log(text: string): void };

const berth = createClient<paths>({
  baseUrl: process.env.BERTH_URL!,
  headers: { 'X-Api-Key': process.env.BERTH_API_KEY! },
});

function check(name: string, ok: boolean, why: unknown) {
  console.log(ok ? `PASS ${name}` : `FAIL ${name} ${JSON.stringify(why)}`);
}

const made = await berth.POST('/v1/containers', { body: { name: 'generated-ts', labels: { by: 'generator' } } });
const container: components['schemas']['Container'] = made.data!;
check('create', container.state === 'running' && container.name === 'generated-ts', made.error);
const id = container.id;

const put = await berth.PUT('/v1/containers/{id}/fs/content', {
  params: { path: { id }, query: { path: 'data.csv' } },
  body: 'Oslo,4\nLima,19\n',
  bodySerializer: (body) => new Blob([body as string]),
  headers: { 'Content-Type': 'application/octet-stream' },
});
check('put', put.data?.size_bytes === 15, put.error);

const read = await berth.GET('/v1/containers/{id}/fs/content', {
  params: { path: { id }, query: { path: 'data.csv' } },
  parseAs: 'text',
});
check('read', read.data === 'Oslo,4\nLima,19\n', read.error);

const ran = await berth.POST('/v1/containers/{id}/exec', {
  params: { path: { id } },
  body: { command: 'wc -l <data.csv', cwd: '/workspace' },
});
const result = ran.data as components['schemas']['ExecResult'];
check('run', 'stdout' in result.result && result.result.stdout.trim() === '2', ran.error ?? ran.data);

const list = await berth.GET('/v1/containers', { params: { query: { label: ['by=generator'] } } });
check('list', list.data?.data.length === 1 && list.data.has_more === false && list.data.next_after === null, list);

const failed = await berth.GET('/v1/containers/{id}/fs/stat', {
  params: { path: { id }, query: { path: 'nowhere' } },
});
check('error', failed.response.status === 404 && failed.error?.error.code === 'not_found' &&
  failed.error.error.message !== '', failed);

const gone = await berth.DELETE('/v1/containers/{id}', { params: { path: { id } } });
check('delete', gone.data?.deleted === true, gone.error);
