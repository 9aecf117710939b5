"""A real Hugging Face Trainer and a real accelerate loop: weights equal to a hand-written loop."""

from __future__ import annotations

import csv

import accelerate
import pytest
import torch
import transformers
from torch import nn
from torch.utils.data import DataLoader

import riesz
from riesz.integrations.accelerate import attach
from riesz.integrations.transformers import ChannelDirected
from training import batch, network

METRIC = riesz.SobolevTilde(0.1)
pytestmark = pytest.mark.filterwarnings("ignore")  # the trainers' own deprecations


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = network()

    def forward(self, pixels, labels):
        logits = self.net(pixels)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def rows():
    images, labels = zip(*(batch(step, size=4) for step in range(6)), strict=True)
    pairs = zip(torch.cat(images), torch.cat(labels), strict=True)
    return [{"pixels": image, "labels": label} for image, label in pairs]


def by_hand(metric=METRIC, accumulate=1, clip=None):
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(2):
        for index, inputs in enumerate(DataLoader(rows(), batch_size=4)):
            (model(**inputs)["loss"] / accumulate).backward()
            if (index + 1) % accumulate == 0:
                if clip is not None:
                    nn.utils.clip_grad_norm_(model.parameters(), clip)
                riesz.precondition_([p.grad for p in model.parameters() if p.dim() == 4], metric)
                optimizer.step()
                optimizer.zero_grad()
    return model


def difference(a, b):
    return max((x - y).abs().max().item() for x, y in zip(a.parameters(), b.parameters(), strict=True))


class InOrder(transformers.Trainer):
    """The order of the data as in the hand-written loop."""

    def get_train_dataloader(self):
        return self.accelerator.prepare(DataLoader(self.train_dataset, batch_size=4))


@pytest.mark.parametrize(("accumulate", "clip"), [(1, None), (2, 0.05)])
def test_transformers_trainer_equals_a_hand_written_loop(accumulate, clip, tmp_path, trainer_differences):
    model = Classifier()
    callback = ChannelDirected(METRIC)
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        num_train_epochs=2,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=accumulate,
        max_grad_norm=clip or 0.0,
        lr_scheduler_type="constant",
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    trainer = InOrder(model, arguments, train_dataset=rows(), optimizers=(optimizer, None), callbacks=[callback])
    trainer.train()
    assert sum(r.applied for r in callback.attachment.report()) == 2
    told = difference(model, by_hand(accumulate=accumulate, clip=clip))
    trainer_differences[f"transformers, accumulate {accumulate}, clip {clip}"] = told
    assert told <= 1e-7
    assert difference(model, by_hand(riesz.Identity(), accumulate, clip)) > 1e-3


@pytest.mark.parametrize("accumulate", [1, 2])
def test_accelerate_loop_equals_a_hand_written_loop(accumulate, trainer_differences):
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=accumulate)
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(rows(), batch_size=4))
    attachment = attach(optimizer, model, metric=METRIC)
    assert sum(r.applied for r in attachment.report()) == 2
    for _ in range(2):
        for inputs in loader:
            with accelerator.accumulate(model):
                accelerator.backward(model(**inputs)["loss"])
                optimizer.step()
                optimizer.zero_grad()
    told = difference(accelerator.unwrap_model(model), by_hand(accumulate=accumulate))
    trainer_differences[f"accelerate, accumulate {accumulate}"] = told
    assert told <= 1e-7


def test_attaching_to_accelerates_wrapper_itself_names_the_inner_one():
    accelerator = accelerate.Accelerator(cpu=True)
    model = network()
    wrapped = accelerator.prepare(torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(TypeError, match="AcceleratedOptimizer wraps another optimizer"):
        riesz.attach(wrapped, model, metric=METRIC)


def test_a_schedule_continues_from_the_trainers_checkpoint(tmp_path):
    def trained(checkpoint=None):
        model = Classifier()
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path),
            num_train_epochs=2,
            per_device_train_batch_size=4,
            lr_scheduler_type="constant",
            report_to=[],
            save_strategy="epoch",
            use_cpu=True,
            disable_tqdm=True,
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        callback = ChannelDirected(METRIC, schedule=riesz.schedule.warmup(9))
        trainer = InOrder(model, arguments, train_dataset=rows(), optimizers=(optimizer, None), callbacks=[callback])
        trainer.train(resume_from_checkpoint=checkpoint)
        return model

    whole = trained()
    resumed = trained(str(tmp_path / "checkpoint-6"))
    assert difference(whole, resumed) == 0
    assert difference(whole, by_hand()) > 1e-4


class CsvReport(transformers.TrainerCallback):
    """What a trainer reports, in a file."""

    def __init__(self, path):
        self.path = path

    def on_log(self, args, state, control, logs=None, **kwargs):
        with self.path.open("a", newline="") as file:
            csv.writer(file).writerows((state.global_step, name, value) for name, value in logs.items())


def test_layers_are_logged_to_all_that_the_trainer_reports_to(tmp_path, capsys):
    model = Classifier()
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        num_train_epochs=2,
        per_device_train_batch_size=4,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    report = CsvReport(tmp_path / "log.csv")
    trainer = InOrder(model, arguments, train_dataset=rows(), optimizers=(optimizer, None), callbacks=[report])
    trainer.add_callback(ChannelDirected(riesz.ReweightedL2(), log_every=5, trainer=trainer))
    trainer.train()
    with report.path.open() as file:
        ours = {(int(step), name): float(value) for step, name, value in csv.reader(file) if "riesz" in name}
    assert {step for step, _ in ours} == {1, 5, 10}
    assert all(1 <= ours[step, "riesz/ratio/net.0.weight"] <= 2 for step in (1, 5, 10))
    kept = {row["step"] for row in trainer.state.log_history if "riesz/cosine/net.3.weight" in row}
    assert kept == {1, 5, 10}
    assert "riesz" not in capsys.readouterr().out


def test_logging_without_a_trainer_is_refused():
    with pytest.raises(ValueError, match="log_every: expected the trainer to log to"):
        ChannelDirected(METRIC, log_every=5)
