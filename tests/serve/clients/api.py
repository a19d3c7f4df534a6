"""Clients of Python against a running server, whose answers their own types check.

  api.py PROGRAM MODEL
"""
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import traceback
import urllib.request
from typing import Literal

from pydantic import BaseModel, Field

KEY = 'secret'
# Sampling that clients set, each once with every API.
SAMPLING = [{'temperature': t, 'top_p': p} for t in (0, 0.7, 1.0) for p in (0.1, 0.9, 1.0)]
TEXTS = ['Hello', 'How is the weather?', 'Count to three.', '1, 2, 3', 'Ünïcödé 漢字 🙂', ' ', 'a\n' * 50]


def taught(model, folder):
    """The model with a template that shows it functions: the shipped one has not learned them."""
    data = open(model, 'rb').read()
    begin = data.index(b'{{ bos_token }}{% for m in messages %}')
    last = b"{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
    length = data.index(last, begin) + len(last) - begin
    template = (b"{{ bos_token }}{{ tools }}{% for m in messages %}{{ '<|' + m.role + '|>' }}"
                b"{{ m.content }}{{ m.tool_calls }}{% endfor %}{{ '<|assistant|>' }}")
    template += b'{#' + b' ' * (length - len(template) - 4) + b'#}'
    path = folder + '/taught.gguf'
    open(path, 'wb').write(data[:begin] + template + data[begin + length:])
    return path


class Weather(BaseModel):
    """How the weather is."""
    city: Literal['Oslo', 'Rome']
    degrees: int = Field(ge=-30, le=50)


WEATHER = {'type': 'object', 'properties': {'city': {'enum': ['Oslo', 'Rome']}}, 'required': ['city'],
           'additionalProperties': False}
FUNCTION = {'name': 'weather', 'description': 'How the weather is', 'parameters': WEATHER}


def openai_chat(url):
    import openai
    client = openai.OpenAI(base_url=url + '/v1', api_key=KEY, max_retries=0)
    ask = {'model': 'tested', 'max_tokens': 4}
    for text in TEXTS:
        for sampling in SAMPLING:
            messages = [{'role': 'system', 'content': 'Be brief.'}, {'role': 'user', 'content': text}]
            whole = client.chat.completions.create(messages=messages, **ask, **sampling)
            assert whole.choices[0].message.role == 'assistant' and whole.usage.completion_tokens <= 4
    for text in TEXTS:
        messages = [{'role': 'user', 'content': [{'type': 'text', 'text': text}]}]
        whole = client.chat.completions.create(messages=messages, temperature=0, **ask)
        parts = client.chat.completions.create(messages=messages, temperature=0, stream=True,
                                               stream_options={'include_usage': True}, **ask)
        chunks = list(parts)
        assert chunks[-1].usage.total_tokens == whole.usage.total_tokens
        streamed = ''.join(chunk.choices[0].delta.content or '' for chunk in chunks[:-1])
        assert streamed == whole.choices[0].message.content
    for seed in (-1, 0, 7, 2 ** 40):
        client.chat.completions.create(messages=[{'role': 'user', 'content': 'x'}], seed=seed, n=2,
                                       presence_penalty=0.5, frequency_penalty=-0.5, stop=['\n', 'END'],
                                       logit_bias={'5': -100}, logprobs=True, top_logprobs=3, user='ann', **ask)
    held = client.chat.completions.parse(messages=[{'role': 'user', 'content': 'Weather?'}],
                                         model='tested', response_format=Weather, max_tokens=400, temperature=0)
    assert held.choices[0].message.parsed.city in ('Oslo', 'Rome')


def openai_tools(url):
    import openai
    client = openai.OpenAI(base_url=url + '/v1', api_key=KEY, max_retries=0)
    tools = [{'type': 'function', 'function': FUNCTION}]
    messages = [{'role': 'user', 'content': 'How is the weather?'}]
    for choice in ('required', {'type': 'function', 'function': {'name': 'weather'}}):
        for parallel in (True, False):
            made = client.chat.completions.create(model='tested', messages=messages, tools=tools, max_tokens=400, temperature=0,
                                                  tool_choice=choice, parallel_tool_calls=parallel)
            message = made.choices[0].message
            assert made.choices[0].finish_reason == 'tool_calls', made
            assert json.loads(message.tool_calls[0].function.arguments)['city'] in ('Oslo', 'Rome')
            after = messages + [message, {'role': 'tool', 'tool_call_id': message.tool_calls[0].id, 'content': 'cold'}]
            for choice_after in ('none', 'auto'):
                client.chat.completions.create(model='tested', messages=after, tools=tools, max_tokens=4,
                                               tool_choice=choice_after, temperature=0)


def openai_others(url):
    import openai
    client = openai.OpenAI(base_url=url + '/v1', api_key=KEY, max_retries=0)
    assert client.models.list().data[0].id == 'tested'
    assert client.models.retrieve('tested').object == 'model'
    for text in TEXTS:
        for logprobs in (None, 2):
            made = client.completions.create(model='tested', prompt=text, max_tokens=3, logprobs=logprobs, echo=True)
            assert made.choices[0].text.startswith(text)
    client.completions.create(model='tested', prompt=TEXTS, max_tokens=2)
    for encoding in ('float', 'base64'):
        vectors = client.embeddings.create(model='tested', input=TEXTS, encoding_format=encoding)
        assert len(vectors.data) == len(TEXTS)
    for wrong in ({'tools': 1}, {'temperature': 9}, {'messages': []}):
        try:
            client.chat.completions.create(**{'model': 'tested', 'messages': [{'role': 'user', 'content': 'x'}], **wrong})
            raise AssertionError(wrong)
        except openai.BadRequestError:
            pass


def openai_responses(url):
    import openai
    client = openai.OpenAI(base_url=url + '/v1', api_key=KEY, max_retries=0)
    for text in TEXTS:
        for sampling in SAMPLING:
            made = client.responses.create(model='tested', input=text, instructions='Be brief.',
                                           max_output_tokens=4, **sampling)
            assert made.status in ('completed', 'incomplete') and made.usage.output_tokens <= 4
        whole = client.responses.create(model='tested', input=text, max_output_tokens=6, temperature=0)
        with client.responses.stream(model='tested', input=text, max_output_tokens=6, temperature=0) as stream:
            events = list(stream)
        assert events[-1].response.output_text == whole.output_text and events[0].type == 'response.created', events
        again = client.responses.create(model='tested', max_output_tokens=4, input=[
            {'role': 'user', 'content': [{'type': 'input_text', 'text': text}]}, *whole.output,
            {'role': 'user', 'content': 'And then?'}])
        assert again.object == 'response'
    tools = [{'type': 'function', **FUNCTION, 'strict': True}]
    items = [{'role': 'user', 'content': 'How is the weather?'}]
    made = client.responses.create(model='tested', input=items, tools=tools, tool_choice='required',
                                   max_output_tokens=400)
    call = made.output[0]
    assert call.type == 'function_call' and json.loads(call.arguments)['city'] in ('Oslo', 'Rome')
    items += [call, {'type': 'function_call_output', 'call_id': call.call_id, 'output': 'cold'}]
    client.responses.create(model='tested', input=items, tools=tools, tool_choice='none', max_output_tokens=4)
    with client.responses.stream(model='tested', input='Weather?', tools=tools, max_output_tokens=400,
                                 tool_choice={'type': 'function', 'name': 'weather'}) as stream:
        for _ in stream:
            pass
        assert stream.get_final_response().output[0].name == 'weather'
    held = client.responses.parse(model='tested', input='Weather?', text_format=Weather, max_output_tokens=400)
    assert held.output_parsed.city in ('Oslo', 'Rome')


def anthropic_messages(url):
    import anthropic
    client = anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=0)
    for text in TEXTS:
        messages = [{'role': 'user', 'content': text}]
        for sampling in SAMPLING:
            made = client.messages.create(model='tested', max_tokens=4, system='Be brief.', messages=messages,
                                          extra_body={**sampling, 'top_k': 5})
            assert made.type == 'message' and made.stop_reason in ('end_turn', 'max_tokens')
        whole = client.messages.create(model='tested', max_tokens=6, messages=messages, extra_body={'top_k': 1})
        with client.messages.stream(model='tested', max_tokens=6, messages=messages,
                                    extra_body={'top_k': 1}) as stream:
            streamed = ''.join(stream.text_stream)
            final = stream.get_final_message()
        assert streamed == ''.join(block.text for block in whole.content), (streamed, whole)
        assert final.usage.output_tokens == whole.usage.output_tokens and final.stop_reason == whole.stop_reason
        assert client.messages.count_tokens(model='tested', messages=messages).input_tokens == \
            whole.usage.input_tokens + whole.usage.cache_read_input_tokens
        client.messages.create(model='tested', max_tokens=4, stop_sequences=['\n'], metadata={'user_id': 'ann'},
                               system=[{'type': 'text', 'text': 'Be brief.', 'cache_control': {'type': 'ephemeral'}}],
                               messages=[*messages, {'role': 'assistant', 'content': whole.content or 'So'},
                                         {'role': 'user', 'content': [{'type': 'text', 'text': 'And?'}]}])
    tools = [{'name': 'weather', 'description': 'How the weather is', 'input_schema': WEATHER}]
    ask = {'model': 'tested', 'max_tokens': 400, 'tools': tools}
    messages = [{'role': 'user', 'content': 'How is the weather?'}]
    for choice in ({'type': 'any'}, {'type': 'tool', 'name': 'weather', 'disable_parallel_tool_use': True}):
        made = client.messages.create(messages=messages, tool_choice=choice, **ask)
        call = made.content[0]
        assert made.stop_reason == 'tool_use' and call.input['city'] in ('Oslo', 'Rome')
        with client.messages.stream(messages=messages, tool_choice=choice, **ask) as stream:
            assert stream.get_final_message().content[0].input['city'] in ('Oslo', 'Rome')
        after = messages + [{'role': 'assistant', 'content': made.content},
                            {'role': 'user', 'content': [
                                {'type': 'tool_result', 'tool_use_id': call.id, 'content': 'cold'}]}]
        client.messages.create(messages=after, tool_choice={'type': 'none'}, **{**ask, 'max_tokens': 4})
    for wrong, error in (({'max_tokens': 0}, anthropic.BadRequestError), ({'extra_body': {'top_k': -9}}, anthropic.BadRequestError)):
        try:
            client.messages.create(**{**ask, 'messages': messages, **wrong})
            raise AssertionError(wrong)
        except error as refused:
            assert refused.body['error']['type'] == 'invalid_request_error', refused.body
    try:
        anthropic.Anthropic(base_url=url, api_key='wrong', max_retries=0).messages.create(messages=messages, **ask)
        raise AssertionError('a wrong key')
    except anthropic.AuthenticationError:
        pass


def ollama_client(url):
    import ollama
    client = ollama.Client(host=url, headers={'Authorization': 'Bearer ' + KEY})
    assert client.list().models[0].model == 'tested'
    assert 'completion' in client.show('tested').capabilities
    client.ps()
    for text in TEXTS:
        for sampling in SAMPLING:
            options = {'num_predict': 4, 'num_ctx': 2048, 'repeat_penalty': 1.1, 'seed': 3, **sampling}
            made = client.chat(model='tested', messages=[{'role': 'user', 'content': text}], options=options)
            assert made.done and made.message.role == 'assistant' and made.eval_count <= 4
        options = {'temperature': 0, 'num_predict': 6}
        for ask, words in ((lambda **more: client.chat(model='tested', messages=[{'role': 'user', 'content': text}],
                                                       options=options, **more), lambda part: part.message.content),
                           (lambda **more: client.generate(model='tested', prompt=text, system='Be brief.',
                                                           options=options, **more), lambda part: part.response),
                           (lambda **more: client.generate(model='tested', prompt=text, raw=True,
                                                           options=options, **more), lambda part: part.response)):
            whole, parts = ask(), list(ask(stream=True))
            assert ''.join(words(part) for part in parts) == words(whole)
            assert parts[-1].done and parts[-1].eval_count == whole.eval_count
    vectors = client.embed(model='tested', input=TEXTS)
    assert len(vectors.embeddings) == len(TEXTS)
    for schema in ('json', Weather.model_json_schema()):
        made = client.chat(model='tested', messages=[{'role': 'user', 'content': 'Weather?'}], format=schema,
                           options={'num_predict': 200, 'temperature': 0})
        if schema != 'json':
            Weather.model_validate_json(made.message.content)
    tools = [{'type': 'function', 'function': FUNCTION}]
    made = client.chat(model='tested', messages=[
        {'role': 'user', 'content': 'Weather?'},
        {'role': 'assistant', 'content': '', 'tool_calls': [
            {'function': {'name': 'weather', 'arguments': {'city': 'Oslo'}}}]},
        {'role': 'tool', 'content': 'cold', 'tool_name': 'weather'}], tools=tools, options={'num_predict': 4})
    assert made.done
    try:
        client.chat(model='tested', messages=[{'role': 'king', 'content': 'x'}])
        raise AssertionError('a role')
    except ollama.ResponseError as error:
        assert error.status_code == 400 and 'king' in error.error


def langchain(url):
    from langchain_anthropic import ChatAnthropic
    from langchain_core.tools import tool as langchain_tool
    from langchain_ollama import ChatOllama
    from langchain_openai import ChatOpenAI

    @langchain_tool
    def weather(city: Literal['Oslo', 'Rome']) -> str:
        """How the weather is."""
        return city
    models = [ChatOpenAI(base_url=url + '/v1', api_key=KEY, model='tested', max_tokens=400, temperature=0, max_retries=0),
              ChatOpenAI(base_url=url + '/v1', api_key=KEY, model='tested', max_tokens=400, temperature=0, max_retries=0,
                         use_responses_api=True),
              ChatAnthropic(base_url=url, api_key=KEY, model_name='tested', max_tokens=400, temperature=0, max_retries=0)]
    for model in models:
        for text in TEXTS[:4]:
            assert model.invoke(text).usage_metadata['output_tokens'] > 0
            assert list(model.stream([('system', 'Be brief.'), ('human', text)]))
        called = model.bind_tools([weather], tool_choice='any').invoke('Weather?')
        assert called.tool_calls[0]['args']['city'] in ('Oslo', 'Rome'), called
        held = model.with_structured_output(Weather).invoke('Weather?')
        assert held.city in ('Oslo', 'Rome')
    model = ChatOllama(base_url=url, model='tested', num_predict=400, temperature=0,
                       client_kwargs={'headers': {'Authorization': 'Bearer ' + KEY}})
    for text in TEXTS[:4]:
        assert model.invoke(text).usage_metadata['output_tokens'] > 0
        assert list(model.stream(text))
    assert model.with_structured_output(Weather, method='json_schema').invoke('Weather?').city in ('Oslo', 'Rome')


def llama_index(url):
    from llama_index.core.llms import ChatMessage
    from llama_index.llms.openai_like import OpenAILike

    model = OpenAILike(api_base=url + '/v1', api_key=KEY, model='tested', is_chat_model=True, max_tokens=4,
                       max_retries=0, context_window=2048)
    for text in TEXTS[:5]:
        assert model.chat([ChatMessage(role='user', content=text)]).message.role == 'assistant'
        assert list(model.stream_chat([ChatMessage(role='user', content=text)]))
        model.complete(text)


def instructor_client(url):
    import instructor
    import openai

    plain = openai.OpenAI(base_url=url + '/v1', api_key=KEY, max_retries=0)
    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
        client = instructor.from_openai(plain, mode=mode)
        for text in TEXTS[:4]:
            made = client.chat.completions.create(model='tested', response_model=Weather, max_tokens=400, max_retries=1, temperature=0,
                                                  messages=[{'role': 'user', 'content': text}])
            assert made.city in ('Oslo', 'Rome')


def pydantic_ai(url):
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    ours = OpenAIProvider(base_url=url + '/v1', api_key=KEY)

    async def work():
        for model in (OpenAIChatModel('tested', provider=ours), OpenAIResponsesModel('tested', provider=ours)):
            for text in TEXTS[:3]:
                agent = Agent(model, output_type=Weather, model_settings={'max_tokens': 400, 'temperature': 0}, retries=3)
                assert (await agent.run(text)).output.city in ('Oslo', 'Rome')
                async with Agent(model, model_settings={'max_tokens': 8}).run_stream(text) as result:
                    async for _ in result.stream_text():
                        pass
    asyncio.run(work())


class Tokens:
    """The server's tokenizer, as lm-eval calls one."""
    eot_token = 2

    def __init__(self, url):
        self.url = url

    def encode(self, text):
        if not isinstance(text, str):
            raise TypeError('one text')
        ask = urllib.request.Request(self.url + '/tokenize', json.dumps({'content': text, 'add_special': True}).encode(),
                                     {'Authorization': 'Bearer ' + KEY})
        return json.loads(urllib.request.urlopen(ask).read())['tokens']

    def encode_batch(self, texts):
        return [self.encode(text) for text in texts]


def lm_eval_task(url):
    """A task of lm-eval, whose log-likelihoods are those that `ballast perplexity` measures."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(HF_HOME=folder, HF_HUB_OFFLINE='1', OPENAI_API_KEY=KEY)
        import lm_eval
        from lm_eval.models.openai_completions import LocalCompletionsAPI
        from lm_eval.tasks import TaskManager
        with open(folder + '/docs.jsonl', 'w') as docs:
            for i in range(4):
                docs.write(json.dumps({'question': f'Record {i} is {i * 37 % 101}. The number of record {i} is', 'gold': 0,
                                       'choices': [str(i * 37 % 101), 'not known', '漢字 🙂']}) + '\n')
        with open(folder + '/tiny.yaml', 'w') as task:
            json.dump({'task': 'tiny', 'dataset_path': 'json', 'dataset_kwargs': {'data_files': {'test': folder + '/docs.jsonl'}},
                       'test_split': 'test', 'output_type': 'multiple_choice', 'doc_to_text': '{{question}}',
                       'doc_to_choice': '{{choices}}', 'doc_to_target': 'gold', 'metric_list': [{'metric': 'acc'}]}, task)
        client = LocalCompletionsAPI(base_url=url + '/v1/completions', model='tested', tokenizer_backend='None', batch_size=4)
        client.tokenizer, client.tokenizer_backend, client.tokenized_requests = Tokens(url), 'of the server', True
        made = lm_eval.simple_evaluate(client, tasks=['tiny'], task_manager=TaskManager(include_path=folder),
                                       bootstrap_iters=0)
        pairs = 0
        for sample in made['samples']['tiny']:
            for (context, continuation), (response, *_) in zip(sample['arguments'], sample['resps']):
                with open(folder + '/text', 'w') as text:
                    text.write(context + continuation)
                own = json.loads(subprocess.run(
                    [*sys.argv[1:2], 'perplexity', '-m', sys.argv[2], '--json', '-q', '--prompt-tokens',
                     str(len(client.tok_encode(context))), folder + '/text'],
                    capture_output=True, check=True, text=True).stdout)
                expected = -own['nats_per_token'] * own['tokens']
                assert abs(float(response[0]) - expected) < 1e-3 * own['tokens'], (context, continuation, response, expected)
                pairs += 1
        assert pairs == 12, pairs


def main():
    program, model = sys.argv[1:3]
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        server = subprocess.Popen([program, 'serve', '-m', taught(model, folder), '--port', '0', '-q', '--api-key',
                                   KEY, '--name', 'tested'], stdout=subprocess.PIPE, text=True)
        try:
            url = re.search(r'http:\S+', server.stdout.readline())[0]
            only = sys.argv[3:]
            for part in (openai_chat, openai_tools, openai_others, openai_responses, anthropic_messages, ollama_client,
                         langchain, llama_index, instructor_client, pydantic_ai, lm_eval_task):
                if only and part.__name__ not in only:
                    continue
                try:
                    part(url)
                    print('ok  ', part.__name__)
                except ImportError as missing:
                    print('skip', part.__name__, missing)
                except Exception:
                    failed += 1
                    print('FAIL', part.__name__)
                    traceback.print_exc(file=sys.stdout)
            ask = urllib.request.Request(url + '/metrics', headers={'Authorization': 'Bearer ' + KEY})
            counts = dict(re.findall(r'ballast_responses_total\{status="(\d+)"\} (\d+)',
                                     urllib.request.urlopen(ask).read().decode()))
            print('answers by status:', counts)
        finally:
            server.kill()
    sys.exit(1 if failed else 0)


main()
