"""Lists the names of the models that ``measured_models.py`` measures, and other names of the same models."""

from __future__ import annotations

TORCHVISION = """
convnext_base swin_t swin_b convnext_tiny convnext_small swin_s convnext_large resnet18 resnet34 resnet50 resnet101
resnet152 wide_resnet50_2 wide_resnet101_2 resnext50_32x4d resnext101_32x8d resnext101_64x4d densenet121 densenet161
densenet169 densenet201 vgg11 vgg11_bn vgg13 vgg13_bn vgg16 vgg16_bn vgg19 vgg19_bn alexnet googlenet inception_v3
mobilenet_v2 mobilenet_v3_large mobilenet_v3_small mnasnet0_5 mnasnet1_0 shufflenet_v2_x0_5 shufflenet_v2_x1_0
squeezenet1_0 squeezenet1_1 efficientnet_b0 efficientnet_b1 efficientnet_b2 efficientnet_b3 efficientnet_b4
efficientnet_b5 efficientnet_b6 efficientnet_b7 efficientnet_v2_s efficientnet_v2_m efficientnet_v2_l swin_v2_t
swin_v2_s swin_v2_b maxvit_t
"""
TIMM = """
swin_tiny_patch4_window7_224 swin_base_patch4_window7_224 convnextv2_base regnety_016 regnety_032 regnety_160
resnetv2_50 seresnet50 seresnext50_32x4d resnet50d resnest50d tf_efficientnetv2_s tf_efficientnetv2_m
tf_efficientnetv2_l tf_efficientnet_b0 tf_efficientnet_b4 tf_efficientnet_b7 mobilenetv3_large_100 mobilenetv2_100
mobilenetv4_conv_medium regnety_004 regnety_008 regnety_080 regnety_320 regnetx_032 convnextv2_tiny convnextv2_large
convnextv2_huge convnext_xlarge convnext_nano convnext_atto swin_small_patch4_window7_224
swin_large_patch4_window7_224 swin_large_patch4_window12_384 swin_base_patch4_window12_384 swinv2_base_window8_256
swinv2_tiny_window8_256 beit_base_patch16_224 beit_large_patch16_224 eva02_base_patch14_224 eva02_large_patch14_224
maxvit_tiny_tf_224 coatnet_0_rw_224 caformer_s18 hrnet_w18 hrnet_w48 dm_nfnet_f0 inception_resnet_v2 pvt_v2_b2
poolformer_s12 mixer_b16_224 mobilevit_s fastvit_t8 hiera_base_224 resnetrs50 resnetv2_50x1_bit resnet101d resnet152d
resnet200d resnetv2_101 resnest101e ecaresnet50d resnetrs101 resnetrs152 resnetrs200 hrnet_w32 mobilenetv3_small_100
mobilenetv4_conv_small mobilenetv4_conv_large tf_efficientnet_b3 tf_efficientnet_b5 tf_efficientnetv2_xl
efficientnetv2_rw_s efficientnetv2_rw_m regnety_002 regnety_040 regnety_120 regnetx_004 regnetx_008 regnetx_016
regnetx_080 regnetx_160 regnetx_320 regnetz_d32 nfnet_l0 dm_nfnet_f1 eca_nfnet_l0 convnext_femto convnext_pico
convnextv2_atto convnextv2_femto convnextv2_pico convnextv2_nano swinv2_small_window8_256 swinv2_base_window16_256
swinv2_large_window12_192 maxvit_base_tf_224 coatnet_1_rw_224 beitv2_base_patch16_224 beitv2_large_patch16_224
eva02_tiny_patch14_224 eva02_small_patch14_224 eva_giant_patch14_224 cait_s24_224 xcit_small_12_p16_224 volo_d1_224
pvt_v2_b0 pvt_v2_b1 pvt_v2_b3 pvt_v2_b4 pvt_v2_b5 poolformer_m36 caformer_b36 focalnet_tiny_srf focalnet_base_srf
davit_tiny davit_small davit_base hiera_tiny_224 hiera_large_224 mvitv2_tiny mvitv2_small mvitv2_base mvitv2_large
edgenext_small mobilevitv2_100 fastvit_sa12 repvit_m1 efficientvit_b1 efficientvit_b3 tiny_vit_5m_224 tiny_vit_21m_224
twins_svt_small twins_pcpvt_base convmixer_768_32 inception_next_tiny repvgg_a2 cspresnet50 vit_tiny_patch16_224
vit_so400m_patch14_siglip_224 vit_giant_patch14_dinov2 vit_small_patch14_dinov2 vit_base_patch14_dinov2
vit_large_patch14_dinov2 flexivit_base deit3_small_patch16_224 deit3_base_patch16_224 deit3_large_patch16_224
deit3_huge_patch14_224 samvit_base_patch16_224
"""
CLIP = """
ViT-B-32 ViT-B-16 ViT-L-14 ViT-H-14 ViT-g-14 ViT-bigG-14 RN50 RN101 ViT-L-14-336 ViT-S-32 ViT-S-16 ViT-M-32 ViT-M-16
ViT-B-32-256 ViT-B-16-plus-240 ViT-L-16 ViT-L-16-320 ViT-H-14-378 coca_ViT-B-32 coca_ViT-L-14 RN50x4 RN50x16 RN50x64
ViT-B-32-quickgelu ViT-B-16-quickgelu ViT-L-14-quickgelu
"""
MORE_NAMES: dict[str, tuple[str, ...]] = {
    "regnety_004": ("regnet_y_400mf", "facebook/regnet-y-004"),
    "regnety_008": ("regnet_y_800mf", "facebook/regnet-y-008"),
    "regnety_016": ("regnet_y_1_6gf", "facebook/regnet-y-016"),
    "regnety_032": ("regnet_y_3_2gf", "facebook/regnet-y-032"),
    "regnety_080": ("regnet_y_8gf", "facebook/regnet-y-080"),
    "regnety_160": ("regnet_y_16gf", "facebook/regnet-y-160"),
    "regnety_320": ("regnet_y_32gf", "facebook/regnet-y-320"),
    "regnetx_004": ("regnet_x_400mf", "facebook/regnet-x-004"),
    "regnetx_008": ("regnet_x_800mf", "facebook/regnet-x-008"),
    "regnetx_016": ("regnet_x_1_6gf", "facebook/regnet-x-016"),
    "regnetx_032": ("regnet_x_3_2gf", "facebook/regnet-x-032"),
    "regnetx_080": ("regnet_x_8gf", "facebook/regnet-x-080"),
    "regnetx_160": ("regnet_x_16gf", "facebook/regnet-x-160"),
    "regnetx_320": ("regnet_x_32gf", "facebook/regnet-x-320"),
    "resnet18": ("microsoft/resnet-18",),
    "resnet34": ("microsoft/resnet-34",),
    "resnet50": ("microsoft/resnet-50",),
    "resnet101": ("microsoft/resnet-101",),
    "resnet152": ("microsoft/resnet-152",),
    "convnext_tiny": ("facebook/convnext-tiny-224",),
    "convnext_small": ("facebook/convnext-small-224",),
    "convnext_base": ("facebook/convnext-base-224",),
    "convnext_large": ("facebook/convnext-large-224",),
    "convnext_xlarge": ("facebook/convnext-xlarge-224-22k",),
    "convnextv2_tiny": ("facebook/convnextv2-tiny-1k-224",),
    "convnextv2_base": ("facebook/convnextv2-base-1k-224",),
    "swin_tiny_patch4_window7_224": ("microsoft/swin-tiny-patch4-window7-224",),
    "swin_small_patch4_window7_224": ("microsoft/swin-small-patch4-window7-224",),
    "swin_base_patch4_window7_224": ("microsoft/swin-base-patch4-window7-224",),
    "swin_large_patch4_window7_224": ("microsoft/swin-large-patch4-window7-224",),
    "beit_base_patch16_224": ("microsoft/beit-base-patch16-224",),
    "beit_large_patch16_224": ("microsoft/beit-large-patch16-224",),
    "efficientnet_b0": ("google/efficientnet-b0",),
    "efficientnet_b7": ("google/efficientnet-b7",),
    "ViT-B-32": ("openai/clip-vit-base-patch32", "laion/CLIP-ViT-B-32-laion2B-s34B-b79K"),
    "ViT-B-16": ("openai/clip-vit-base-patch16", "laion/CLIP-ViT-B-16-laion2B-s34B-b88K"),
    "ViT-L-14": ("openai/clip-vit-large-patch14", "laion/CLIP-ViT-L-14-laion2B-s32B-b82K"),
    "ViT-L-14-336": ("openai/clip-vit-large-patch14-336",),
    "ViT-H-14": ("laion/CLIP-ViT-H-14-laion2B-s32B-b79K",),
    "ViT-g-14": ("laion/CLIP-ViT-g-14-laion2B-s12B-b42K",),
    "ViT-bigG-14": ("laion/CLIP-ViT-bigG-14-laion2B-39B-b160k",),
}
